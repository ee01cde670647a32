"""What a transfer engine must do, and how one fails (docs/spec.md, prefill-decode disaggregation)."""

from collections.abc import Sequence
from typing import Protocol

from dsv4_npu_ops.disagg.components import StateComponent
from dsv4_npu_ops.disagg.payloads import PageCopies


class TransferFailed(RuntimeError):
    """The other end left, did not answer, or broke the protocol; the message says which."""


class ChannelClosed(TransferFailed):
    """The other end has closed the control channel, or ended."""


class TransferEngine(Protocol):
    """One-sided writes into the memory of another process. One object serves one process's pools."""

    @property
    def session(self) -> str:
        """The address under which peers write into this process."""

    def register(self, components: Sequence[StateComponent]) -> None:
        """Opens the memory of the components to peers and to own writes.

        Raises:
            TransferFailed: the engine refused.
        """

    def write(self, session: str, copies: PageCopies) -> None:
        """Copies registered memory into a peer's, and returns when all of it has arrived there.

        Raises:
            TransferFailed: the peer is gone or has not registered the memory; a part may have been written.
        """

    def close(self) -> None:
        """Returns when no peer's write can arrive in this process any more. Nothing else may be called afterwards."""

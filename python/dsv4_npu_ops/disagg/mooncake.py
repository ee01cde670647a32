"""Mooncake's transfer engine over TCP. Needs the extra ``disagg``.

Mooncake's listening sockets accept on every interface of the host, whatever address they are known under; confine
the process (a firewall, a network namespace) where that matters.
"""

from collections.abc import Sequence

from dsv4_npu_ops.disagg.components import StateComponent
from dsv4_npu_ops.disagg.payloads import PageCopies
from dsv4_npu_ops.disagg.transfer import TransferFailed


class MooncakeEngine:
    """``TransferEngine`` by Mooncake, whose peers find each other by address without a metadata server.

    Args:
        host: the address of this process for its peers.

    Raises:
        ImportError: Mooncake or one of its system libraries (libibverbs1, libnuma1, liburing2 on Debian) is missing.
        TransferFailed: the engine did not start.

    Source: kvcache-ai/Mooncake, Python API of its transfer engine.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        from mooncake.engine import TransferEngine

        self._engine = TransferEngine()
        code = self._engine.initialize(host, "P2PHANDSHAKE", "tcp", "")
        if code:
            raise TransferFailed(f"MooncakeEngine: initialize on {host} returned {code}, expected 0")
        self._session = f"{host}:{self._engine.get_rpc_port()}"

    @property
    def session(self) -> str:
        """See ``TransferEngine.session``."""
        return self._session

    def register(self, components: Sequence[StateComponent]) -> None:
        """See ``TransferEngine.register``."""
        for component in components:
            code = self._engine.batch_register_memory(list(component.data_ptrs), list(component.data_lens))
            if code:
                raise TransferFailed(f"MooncakeEngine: registering {component.type.value} returned {code}, expected 0")

    def write(self, session: str, copies: PageCopies) -> None:
        """See ``TransferEngine.write``."""
        if not copies.lens:
            return
        code = self._engine.batch_transfer_sync_write(session, copies.source, copies.target, copies.lens)
        if code:
            raise TransferFailed(
                f"MooncakeEngine: writing {sum(copies.lens)} bytes in {len(copies.lens)} copies to {session} "
                f"returned {code}, expected 0"
            )

    def close(self) -> None:
        """See ``TransferEngine.close``: the engine's threads end with it."""
        del self._engine

"""The control channel between a prefill and a decode worker: one JSON object a line over a stream socket.

| message | from | says |
|---|---|---|
| ``hello`` | both | the engine's session and the pools' components; sent first by both, checked by both |
| ``order`` | decode | prefill this prompt in such chunks, and write its pages to these |
| ``done`` | prefill | all pages are written, so many of each kind; the first token, the MTP layer's streams |
| ``refused`` | prefill | an order that will not be done, and why; nothing was written |

Whoever cannot go on closes the socket.
"""

import base64
import json
import select
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.disagg.components import ComponentMismatch, StateComponent, StateType, match_components
from dsv4_npu_ops.disagg.payloads import Payload
from dsv4_npu_ops.disagg.transfer import ChannelClosed, TransferFailed

PROTOCOL = 1
_DTYPES = {str(dtype): dtype for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16)}
Message = Mapping[str, Any]


class Channel:
    """Messages over a connected socket, which it owns.

    Args:
        connection: a connected stream socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._unread = connection, bytearray()

    def send(self, kind: str, **fields: object) -> None:
        """Sends one message.

        Raises:
            ChannelClosed: the other end is gone.
        """
        try:
            self._socket.sendall(json.dumps({"kind": kind, **fields}).encode() + b"\n")
        except OSError as error:
            raise ChannelClosed(f"the control channel broke: {error}") from error

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message, or None when none is complete within the time; without one it waits.

        Raises:
            ChannelClosed: the other end is gone.
            TransferFailed: it sent something else than messages.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                if not select.select([self._socket], [], [], left)[0]:
                    return None
                received = self._socket.recv(1 << 16)
            except (OSError, ValueError) as error:
                raise ChannelClosed(f"the control channel broke: {error}") from error
            if not received:
                raise ChannelClosed("the other end closed the control channel")
            self._unread += received
        line, _, rest = bytes(self._unread).partition(b"\n")
        self._unread = bytearray(rest)
        try:
            message = json.loads(line)
        except ValueError as error:
            raise TransferFailed(f"the other end sent no message: {line[:80]!r}") from error
        if not isinstance(message, dict) or "kind" not in message:
            raise TransferFailed(f"the other end sent no message: {line[:80]!r}")
        return message

    def greet(
        self, session: str, components: Sequence[StateComponent], timeout_s: float
    ) -> tuple[str, list[StateComponent]]:
        """Exchanges ``hello`` and checks that both ends describe the same state.

        Returns:
            the other end's session and components.

        Raises:
            ComponentMismatch: they do not; the other end sees the same.
            TransferFailed: no answer in time, or not a greeting of this protocol.
        """
        described = [
            {"type": c.type.value, "data_ptrs": c.data_ptrs, "data_lens": c.data_lens, "item_lens": c.item_lens}
            for c in components
        ]
        self.send("hello", protocol=PROTOCOL, session=session, components=described)
        answer = self.receive(timeout_s)
        if answer is None or answer["kind"] != "hello" or answer.get("protocol") != PROTOCOL:
            got = "nothing" if answer is None else f"{answer['kind']} of protocol {answer.get('protocol')}"
            raise TransferFailed(f"expected a hello of protocol {PROTOCOL} within {timeout_s} s, got {got}")
        try:
            theirs = [
                StateComponent(
                    state_type(c["type"]), tuple(c["data_ptrs"]), tuple(c["data_lens"]), tuple(c["item_lens"])
                )
                for c in answer["components"]
            ]
            their_session = answer["session"]
        except (KeyError, TypeError) as error:
            raise TransferFailed(f"expected a session and components in the hello, got none: {error!r}") from error
        match_components(components, theirs)
        return their_session, theirs

    def close(self) -> None:
        """Closes the socket; the other end notices."""
        self._socket.close()


def state_type(name: str) -> StateType:
    """The kind of state with this name.

    Raises:
        ComponentMismatch: there is none.
    """
    try:
        return StateType(name)
    except ValueError:
        known = ", ".join(kind.value for kind in StateType)
        raise ComponentMismatch(f"components: expected types among {known}, got {name!r}") from None


def encode_pages(pages: Payload) -> dict[str, list[int]]:
    """A request's page lists as a message field."""
    return {kind.value: list(ids) for kind, ids in pages.items()}


def decode_pages(field: Mapping[str, object]) -> dict[StateType, list[int]]:
    """The inverse of ``encode_pages``.

    Raises:
        ComponentMismatch: an unknown type, or something else than a list of page ids.
    """
    pages: dict[StateType, list[int]] = {}
    for name, ids in field.items():
        if not isinstance(ids, list) or not all(type(page) is int for page in ids):
            raise ComponentMismatch(f"component {name}: expected a list of page ids, got {ids!r}")
        pages[state_type(name)] = ids
    return pages


def encode_tensor(tensor: Tensor) -> dict[str, object]:
    """A small floating-point tensor, to the bit, as a message field."""
    flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
    data = base64.b64encode(bytes(flat.tolist())).decode()
    return {"dtype": str(tensor.dtype), "shape": list(tensor.shape), "data": data}


def decode_tensor(field: Mapping[str, Any]) -> Tensor:
    """The inverse of ``encode_tensor``, on the host.

    Raises:
        TransferFailed: an unknown dtype, or data of another size than the shape says.
    """
    dtype, shape = _DTYPES.get(field["dtype"]), field["shape"]
    data = bytearray(base64.b64decode(field["data"]))
    if dtype is None or len(data) != torch.Size(shape).numel() * dtype.itemsize:
        raise TransferFailed(f"expected a tensor, got {len(data)} bytes for {field['dtype']} {shape}")
    return torch.frombuffer(data, dtype=dtype).view(shape)

"""Small host tensors on their way to a device: pinned, without a wait (docs/spec.md, cost)."""

from collections import deque
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.graph_capture import is_capturing

_ALIGNMENT_BYTES = 64  # of each tensor in a buffer
_SMALLEST_BUFFER_BYTES = 4096


class HostStaging:
    """Copies host tensors to a device through pinned buffers, one asynchronous copy a call.

    A buffer is written again only when the event behind its last copy has happened, which is asked and never waited
    for: while copies are pending, the ring of buffers grows. On a CPU nothing is copied at all.

    Threads may share it (docs/spec.md, threads).

    Args:
        device: where the tensors are wanted.

    Source: docs/spec.md, cost.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        # Pinned bytes and the event behind their last copy, oldest first.
        self._ring: deque[tuple[Tensor, Any]] = deque()
        # Around asking for the oldest buffer and taking it, or two threads would fill the same one.
        self._taking = Lock()

    @property
    def num_buffers(self) -> int:
        """Pinned buffers that exist: the most copies that were pending at once."""
        return len(self._ring)

    def to_device(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The tensors on the device, all by one copy on the current stream.

        Args:
            tensors: contiguous host tensors; they may be changed or freed afterwards. On a CPU they are returned as
                they are.

        Returns:
            tuple: tensors of the same shapes and dtypes on the device, views of one new allocation.

        Raises:
            ValueError: a tensor that is not contiguous on the host.
            RuntimeError: inside a graph capture, which would copy these values again at every replay.
        """
        for i, tensor in enumerate(tensors):
            if not (tensor.is_cpu and tensor.is_contiguous()):
                raise ValueError(
                    f"HostStaging.to_device: tensors[{i}] is on {tensor.device} with strides {tensor.stride()}, "
                    "expected a contiguous tensor on the host"
                )
        if self.device.type == "cpu":
            return tensors
        begins, end = [], 0
        for tensor in tensors:
            begins.append(end)
            end += -(-tensor.nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        _refuse_capture("to_device")
        pinned = self._free_buffer(end)
        for begin, tensor in zip(begins, tensors, strict=True):
            _view(pinned, begin, tensor).copy_(tensor)
        on_device = torch.empty(end, dtype=torch.uint8, device=self.device)
        on_device.copy_(pinned[:end], non_blocking=True)
        self._in_flight(pinned, on_device)
        return tuple(_view(on_device, begin, tensor) for begin, tensor in zip(begins, tensors, strict=True))

    def copy_into(self, target: Tensor, host: Tensor) -> None:
        """Overwrites a tensor that keeps its address, as a graph's inputs do, by one copy on the current stream.

        Args:
            target: contiguous, on the device.
            host: a host tensor of the same shape and dtype; it may be changed or freed afterwards.

        Raises:
            ValueError: shapes or dtypes that differ, or a target elsewhere.
            RuntimeError: inside a graph capture, which would copy these values again at every replay.
        """
        if (target.shape, target.dtype, target.device.type) != (host.shape, host.dtype, self.device.type):
            raise ValueError(
                f"HostStaging.copy_into: target is {target.dtype} {list(target.shape)} on {target.device}, expected "
                f"{host.dtype} {list(host.shape)} on {self.device}"
            )
        _refuse_capture("copy_into")
        if self.device.type == "cpu":
            target.copy_(host)
            return
        pinned = self._free_buffer(host.nbytes)
        staged = _view(pinned, 0, host)
        staged.copy_(host)
        target.copy_(staged, non_blocking=True)
        self._in_flight(pinned, target)

    def _in_flight(self, pinned: Tensor, target: Tensor) -> None:
        """Back into the ring, behind the copy to `target`."""
        module = torch.get_device_module(self.device)
        event = module.Event()
        event.record(module.current_stream(target.device))
        self._ring.append((pinned, event))

    def _free_buffer(self, size_bytes: int) -> Tensor:
        """A pinned buffer that no pending copy reads; it leaves the ring."""
        buffer = None
        with self._taking:
            if self._ring and self._ring[0][1].query():
                buffer, _ = self._ring.popleft()
        if buffer is not None and buffer.nbytes >= size_bytes:
            return buffer
        capacity = max(_SMALLEST_BUFFER_BYTES, 1 << (size_bytes - 1).bit_length() if size_bytes else 0)
        return torch.empty(capacity, dtype=torch.uint8, pin_memory=True)


def _refuse_capture(method: str) -> None:
    if is_capturing():
        raise RuntimeError(
            f"HostStaging.{method}: called inside a graph capture, expected before it: "
            "what changes between replays is copied into fixed buffers before the replay"
        )


def _view(buffer: Tensor, begin: int, like: Tensor) -> Tensor:
    """The part of a byte buffer that holds a tensor of this shape and dtype."""
    return buffer[begin : begin + like.nbytes].view(like.dtype).view(like.shape)

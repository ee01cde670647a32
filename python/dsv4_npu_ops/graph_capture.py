"""Whether a device graph is being captured (aclgraph): what a captured step must not do is refused there."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_declared: ContextVar[bool] = ContextVar("dsv4_npu_ops_graph_capture", default=False)


@contextmanager
def graph_capture() -> Iterator[None]:
    """Declares that the code inside is being captured in a graph.

    Capture on an NPU or a GPU is noticed without this. On a CPU, where no capture exists, it lets the same code be
    checked: whatever is refused during a capture is refused inside this block. It holds for the current thread or task.

    Source: docs/spec.md, RoPE (inside capture a missing table is an error).
    """
    token = _declared.set(True)
    try:
        yield
    finally:
        _declared.reset(token)


def is_capturing() -> bool:
    """True inside ``graph_capture()`` and while the current NPU or GPU stream captures a graph."""
    if _declared.get():
        return True
    for backend in (getattr(torch, "npu", None), torch.cuda):
        # An uninitialised backend captures nothing, and asking a build without it raises.
        if backend is not None and backend.is_initialized() and backend.is_current_stream_capturing():
            return True
    return False

"""Calls of an op that hand over most arguments once: converting those of a step takes as long as a small step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import finalize

import torch
from torch import Tensor

import dsv4_npu_ops._C  # noqa: F401  (loading it registers torch.ops.dsv4_npu_calls)

_bind = torch.ops.dsv4_npu_calls.bind
_bound = torch.ops.dsv4_npu_calls.bound.default
_unbind = torch.ops.dsv4_npu_calls.unbind.default


class BoundCall:
    """A call of an op with these arguments, but for a few tensors, which each call brings in their order.

    The op checks its arguments in every call. Made and called outside of a trace, which would keep a number of this
    process.

    Attributes:
        run: calls the op with the tensors that change, as long as this object lives.

    Args:
        op: its name, or name and overload as ``"step__new"``.
        arguments, named: of the op; they live as long as this does. A tensor that changes stands for those of the
            calls.
        changing: positions of the tensors that change, up to eleven.
    """

    __slots__ = ("__weakref__", "run")

    def __init__(self, op: str, arguments: Sequence[Any], changing: Sequence[int] = (), **named: Any) -> None:
        number = getattr(_bind, op)(changing, *arguments, **named)
        # Not at the process's end: who calls last is not known.
        finalize(self, _unbind, number).atexit = False
        self.run: Callable[..., list[Tensor]] = partial(_bound, number)

    def __reduce__(self) -> Any:
        raise TypeError("a BoundCall holds what its process knows, and cannot be copied")

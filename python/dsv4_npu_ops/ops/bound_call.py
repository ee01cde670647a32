"""Calls of an op that hand over most arguments once: converting those of a step takes as long as a small step."""

from __future__ import annotations

from collections.abc import Sequence
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

    Args:
        op: its name, or name and overload as ``"step__new"``.
        arguments, named: of the op; they live as long as this does. A tensor that changes stands for those of the
            calls.
        changing: positions of the tensors that change, up to eleven.
    """

    __slots__ = ("__weakref__", "_number")

    def __init__(self, op: str, arguments: Sequence[Any], changing: Sequence[int] = (), **named: Any) -> None:
        self._number: int = getattr(_bind, op)(changing, *arguments, **named)
        # Not at the process's end: who calls last is not known.
        finalize(self, _unbind, self._number).atexit = False

    def __call__(self, *tensors: Tensor | None) -> list[Tensor]:
        """The op's results."""
        return _bound(self._number, *tensors)  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        raise TypeError("a BoundCall holds what its process knows, and cannot be copied")

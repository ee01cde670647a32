"""Calls of an op that hand over most arguments once: converting those of a step takes as long as a small step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from weakref import finalize

import torch
from torch import Tensor

import dsv4_npu_ops._C  # noqa: F401  (loading it registers torch.ops.dsv4_npu_calls)

_bind = torch.ops.dsv4_npu_calls.bind
_bound = torch.ops.dsv4_npu_calls.bound.default
_unbind = torch.ops.dsv4_npu_calls.unbind.default


class BoundCall(partial[list[Tensor]]):
    """A call of an op with these arguments, but for a few tensors, which each call brings in their order.

    The op checks its arguments in every call. Made outside of a trace: the tensors are the ones at hand.

    Args:
        op: its name, or name and overload as ``"step__new"``.
        arguments, named: of the op; a tensor that changes stands for those of the calls.
        changing: positions of the tensors that change, up to nine.
    """

    def __new__(cls, op: str, arguments: Sequence[Any], changing: Sequence[int] = (), **named: Any) -> BoundCall:
        """Takes the arguments; they live until the call is forgotten."""
        number = getattr(_bind, op)(changing, *arguments, **named)
        call = super().__new__(cls, _bound, number)
        finalize(call, _unbind, number)
        return call

    def __reduce__(self) -> Any:
        raise TypeError("a BoundCall holds what its process knows, and cannot be copied")

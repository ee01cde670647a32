"""One launch that fills buffers of SGLang's, in their place or beside them, or new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Unexpected
from dsv4_npu_ops.engines.sglang.tables import SglangTables
from dsv4_npu_ops.layout import StepRows
from dsv4_npu_ops.layout.buffers import Buffer, numbers_of
from dsv4_npu_ops.layout.step import STEP_FIELDS
from dsv4_npu_ops.ops.step import NewStep, bind_step, bits

Result = TypeVar("Result")

_NUMBERS = {name: number for number, name in enumerate(STEP_FIELDS)}


def launch(op: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """Calls an op.

    Raises:
        Unexpected: an argument that the op does not take; nothing is filled.
    """
    try:
        return op(*arguments, **named)
    except ValueError as error:
        raise Unexpected(str(error)) from None


def first_rows(rows: Tensor, size: int) -> Tensor:
    """``rows[:size]``; a slice costs as much as a small op, so that there is none where it would be the whole."""
    return rows if rows.shape[0] == size else rows[:size]


class Buffers:
    """What a launch fills, by the names of ``Step``'s fields, in steps of one form and width over these tables."""

    __slots__ = ("_call", "_fields", "_tables", "_tensors", "_window_block", "named")

    def __init__(self, tables: SglangTables, named: dict[str, Tensor], window_block: int = 1) -> None:
        self._tables, self._window_block = tables, window_block
        self.named = dict(sorted(named.items(), key=lambda item: _NUMBERS[item[0]]))
        self._tensors = list(self.named.values())
        self._fields = bits([_NUMBERS[name] for name in self.named])
        self._call: Callable[..., object] | None = None

    def fill(self, rows: StepRows, req_pool_indices: Tensor) -> None:
        """
        Raises:
            Unexpected: a tensor that the op does not take; nothing is filled.
        """
        call = self._call
        if call is None:
            call = self._call = self._bind(rows, req_pool_indices)
        launch(call, rows.seq_lens, req_pool_indices, rows.operand)

    def _bind(self, rows: StepRows, req_pool_indices: Tensor) -> Callable[..., object]:
        tables = self._tables
        unusual = tables.dummy_slots, tables.dummy_pages, self._window_block
        return bind_step(tables.tables, rows, self._tensors, self._fields, req_pool_indices, None, None, *unusual)

    def beside(self) -> Buffers:
        """Others of the same shapes."""
        copies = {name: torch.full_like(buffer, -7) for name, buffer in self.named.items()}
        return Buffers(self._tables, copies, self._window_block)


class NewBuffers:
    """What a launch makes and fills, by the names of ``Step``'s fields. Kept for steps of one form, width and size over
    these tables."""

    __slots__ = ("names", "step")

    def __init__(self, tables: SglangTables, wanted: dict[str, Buffer]) -> None:
        self.names = sorted(wanted, key=lambda name: _NUMBERS[name])
        numbers = numbers_of(wanted[name] for name in self.names)
        fields = bits([_NUMBERS[name] for name in self.names])
        self.step = NewStep(tables.tables, numbers, fields, tables.dummy_slots, tables.dummy_pages)

    def make(self, rows: StepRows, req_pool_indices: Tensor) -> dict[str, Tensor]:
        """The buffers by name.

        Raises:
            Unexpected: a tensor that the op does not take.
        """
        return dict(zip(self.names, launch(self.step.run, rows, req_pool_indices), strict=True))

"""One launch that fills buffers of SGLang's, in their place or beside them, or new ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
    """What a launch fills, by the names of ``Step``'s fields."""

    __slots__ = ("call", "fields", "named", "tensors")

    def __init__(self, named: dict[str, Tensor]) -> None:
        self.named = dict(sorted(named.items(), key=lambda item: _NUMBERS[item[0]]))
        self.tensors = list(self.named.values())
        self.fields = bits([_NUMBERS[name] for name in self.named])
        self.call: Callable[..., object] | None = None


class NewBuffers:
    """What a launch makes and fills, by the names of ``Step``'s fields. Kept for steps of one form, width and size over
    these tables."""

    __slots__ = ("names", "step")

    def __init__(self, tables: SglangTables, wanted: dict[str, Buffer]) -> None:
        self.names = sorted(wanted, key=lambda name: _NUMBERS[name])
        numbers = numbers_of(wanted[name] for name in self.names)
        fields = bits([_NUMBERS[name] for name in self.names])
        self.step = NewStep(tables.tables, numbers, fields, tables.dummy_slots, tables.dummy_pages)

    def make(self, rows: StepRows, req_pool_indices: Tensor, host_rows: StepRows | None = None) -> dict[str, Tensor]:
        """The buffers by name; host_rows: the rows on the host, where there is an entry a group.

        Raises:
            Unexpected: a tensor that the op does not take.
        """
        made = launch(self.step.run, rows, req_pool_indices, host_rows=host_rows)
        return dict(zip(self.names, made, strict=True))


@dataclass(slots=True)
class StepCall:
    """A step over SGLang's tables.

    Attributes:
        buffers: kept by who makes calls of one kind: other tables, another form or width have others.
    """

    tables: SglangTables
    rows: StepRows
    req_pool_indices: Tensor
    buffers: Buffers
    window_block: int = 1

    def run(self) -> None:
        """Fills the buffers.

        Raises:
            Unexpected: a tensor that the op does not take; nothing is filled.
        """
        rows = self.rows
        launch(self.buffers.call or self._bind(), rows.seq_lens, self.req_pool_indices, rows.operand)

    def _bind(self) -> Callable[..., object]:
        buffers, tables = self.buffers, self.tables
        unusual = tables.dummy_slots, tables.dummy_pages, self.window_block
        arguments = tables.tables, self.rows, buffers.tensors, buffers.fields, self.req_pool_indices, None, None
        call = buffers.call = bind_step(*arguments, *unusual)
        return call

    def beside(self) -> StepCall:
        """The same call into buffers of its own, of the same shapes."""
        copies = {name: torch.full_like(buffer, -7) for name, buffer in self.buffers.named.items()}
        return replace(self, buffers=Buffers(copies))

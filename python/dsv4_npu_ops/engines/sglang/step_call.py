"""One launch that fills buffers of SGLang's, in their place or beside them, or new ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Unexpected
from dsv4_npu_ops.engines.sglang.tables import SglangTables
from dsv4_npu_ops.layout import StepRows
from dsv4_npu_ops.layout.buffers import Buffer, numbers_of
from dsv4_npu_ops.layout.step import STEP_FIELDS
from dsv4_npu_ops.ops.step import bind_step, bits

Result = TypeVar("Result")

_NUMBERS = {name: number for number, name in enumerate(STEP_FIELDS)}


def launch(op: Callable[..., Result], *arguments: Any) -> Result:
    """Calls an op.

    Raises:
        Unexpected: an argument that the op does not take; nothing is filled.
    """
    try:
        return op(*arguments)
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
        self.call: Callable[..., list[Tensor]] | None = None


class NewBuffers:
    """What a launch makes and fills, by the names of ``Step``'s fields."""

    __slots__ = ("call", "fields", "names", "numbers")

    def __init__(self, wanted: dict[str, Buffer]) -> None:
        self.names = sorted(wanted, key=lambda name: _NUMBERS[name])
        self.numbers = numbers_of(wanted[name] for name in self.names)
        self.fields = bits([_NUMBERS[name] for name in self.names])
        self.call: Callable[..., list[Tensor]] | None = None


AnyBuffers = TypeVar("AnyBuffers", Buffers, NewBuffers)


@dataclass(slots=True)
class StepCall(Generic[AnyBuffers]):
    """A step over SGLang's tables.

    Attributes:
        buffers: kept by who makes calls of one kind: other tables, another form or width have others.
        host_lens: the rows' lengths on the host, where new buffers have an entry a group.
    """

    tables: SglangTables
    rows: StepRows
    req_pool_indices: Tensor
    buffers: AnyBuffers
    window_block: int = 1
    host_lens: Tensor | None = None

    def run(self) -> dict[str, Tensor]:
        """Fills or makes the buffers.

        Raises:
            Unexpected: a tensor that the op does not take; nothing is filled.
        """
        buffers, rows = self.buffers, self.rows
        call = buffers.call or self._bind()
        of_rows = rows.seq_lens, self.req_pool_indices, rows.operand
        made = launch(call, *of_rows) if self.host_lens is None else launch(call, *of_rows, self.host_lens)
        return buffers.named if isinstance(buffers, Buffers) else dict(zip(buffers.names, made, strict=True))

    def _bind(self) -> Callable[..., list[Tensor]]:
        buffers, tables = self.buffers, self.tables
        into_new = isinstance(buffers, NewBuffers)
        call = buffers.call = bind_step(
            tables.tables,
            self.rows,
            buffers.numbers if isinstance(buffers, NewBuffers) else buffers.tensors,
            buffers.fields,
            self.req_pool_indices,
            None,
            None,
            tables.dummy_slots,
            tables.dummy_pages,
            self.window_block,
            into_new=into_new,
            other_rows=True,
        )
        return call

    def beside(self: StepCall[Buffers]) -> StepCall[Buffers]:
        """The same call into buffers of its own, of the same shapes."""
        copies = {name: torch.full_like(buffer, -7) for name, buffer in self.buffers.named.items()}
        return replace(self, buffers=Buffers(copies))

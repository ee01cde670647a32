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
from dsv4_npu_ops.ops.step import bits, fill_step, new_step

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

    __slots__ = ("fields", "named", "tensors")

    def __init__(self, named: dict[str, Tensor]) -> None:
        self.named = dict(sorted(named.items(), key=lambda item: _NUMBERS[item[0]]))
        self.tensors = list(self.named.values())
        self.fields = bits([_NUMBERS[name] for name in self.named])


class NewBuffers:
    """What a launch makes and fills, by the names of ``Step``'s fields."""

    __slots__ = ("fields", "names", "numbers")

    def __init__(self, wanted: dict[str, Buffer]) -> None:
        self.names = sorted(wanted, key=lambda name: _NUMBERS[name])
        self.numbers = numbers_of(wanted[name] for name in self.names)
        self.fields = bits([_NUMBERS[name] for name in self.names])


@dataclass(slots=True)
class StepCall:
    """A step over SGLang's tables, and the buffers that it fills."""

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
        launch(
            fill_step,
            self.tables.tables,
            self.rows,
            self.buffers.tensors,
            self.buffers.fields,
            self.req_pool_indices,
            None,
            None,
            self.tables.dummy_slots,
            self.tables.dummy_pages,
            self.window_block,
        )

    def beside(self) -> StepCall:
        """The same call into buffers of its own, of the same shapes."""
        copies = {name: torch.full_like(buffer, -7) for name, buffer in self.buffers.named.items()}
        return replace(self, buffers=Buffers(copies))


@dataclass(slots=True)
class NewStep:
    """A step over SGLang's tables into new buffers."""

    tables: SglangTables
    rows: StepRows
    req_pool_indices: Tensor
    buffers: NewBuffers

    def run(self) -> dict[str, Tensor]:
        """The buffers by name.

        Raises:
            Unexpected: a tensor that the op does not take.
        """
        made = launch(
            new_step,
            self.tables.tables,
            self.rows,
            self.buffers.numbers,
            self.buffers.fields,
            self.req_pool_indices,
            None,
            None,
            self.tables.dummy_slots,
            self.tables.dummy_pages,
        )
        return dict(zip(self.buffers.names, made, strict=True))

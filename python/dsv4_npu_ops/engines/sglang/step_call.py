"""One launch that fills buffers of SGLang's, in their place or beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Unexpected
from dsv4_npu_ops.engines.sglang.tables import SglangTables
from dsv4_npu_ops.layout import StepRows
from dsv4_npu_ops.layout.step import STEP_FIELDS
from dsv4_npu_ops.ops.step import bits, fill_step

_NUMBERS = {name: number for number, name in enumerate(STEP_FIELDS)}


class Buffers:
    """What a launch fills, by the names of ``Step``'s fields."""

    __slots__ = ("fields", "named", "tensors")

    def __init__(self, named: dict[str, Tensor]) -> None:
        self.named = dict(sorted(named.items(), key=lambda item: _NUMBERS[item[0]]))
        self.tensors = list(self.named.values())
        self.fields = bits([_NUMBERS[name] for name in self.named])


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
        try:
            fill_step(
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
        except ValueError as error:
            raise Unexpected(str(error)) from None

    def beside(self) -> StepCall:
        """The same call into buffers of its own, of the same shapes."""
        copies = {name: torch.full_like(buffer, -7) for name, buffer in self.buffers.named.items()}
        return replace(self, buffers=Buffers(copies))

"""One launch that fills buffers of SGLang's, in their place or beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dsv4_npu_ops.engines.sglang.tables import SglangTables
from dsv4_npu_ops.layout import Step, StepRows
from dsv4_npu_ops.ops import build_step

DUMMY_PAGES = {"swa": 0}
"""SGLang's tables hold page 0 in front of the window, which is memory that a kernel may read; -1 behind the end."""


@dataclass(frozen=True)
class StepCall:
    """Arguments of ``build_step`` over SGLang's tables.""" ""

    tables: SglangTables
    rows: StepRows
    req_pool_indices: Tensor
    out: Step
    window_block: int = 1

    def run(self) -> None:
        """Fills the buffers."""
        build_step(
            self.tables.tables,
            self.rows,
            self.out,
            req_pool_indices=self.req_pool_indices,
            dummy_slots=self.tables.dummy_slots,
            dummy_pages=DUMMY_PAGES,
            window_block=self.window_block,
        )

    def beside(self) -> StepCall:
        """The same call into buffers of its own, of the same shapes."""
        copies = {name: torch.full_like(buffer, -7) for name, buffer in self.buffers().items()}
        return replace(self, out=Step(**copies))

    def buffers(self) -> dict[str, Tensor]:
        """Buffers by the field's name."""
        named = {name: getattr(self.out, name) for name in Step.__slots__}
        return {name: buffer for name, buffer in named.items() if buffer is not None}

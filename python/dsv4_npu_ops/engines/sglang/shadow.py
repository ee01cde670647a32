"""SGLang's results beside ours, and where its page tables mean something."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from dsv4_npu_ops.engines import shadow
from dsv4_npu_ops.engines.shadow import Tensors
from dsv4_npu_ops.layout import RequestTables

_TOKENS_OF_UNIT = {"full": 1, "swa": 1, "c4": 4, "c128": 128}


def compare(
    function: str,
    theirs: Tensors,
    ours: Tensors,
    again: Callable[[], object],
    live: Mapping[str, Tensor] | None = None,
) -> bool:
    """``shadow.compare`` with a function of SGLang's."""
    return shadow.compare("SGLang", function, theirs, ours, again, live)


def live_pages(tables: RequestTables, page_tables: Tensors, starts: Tensor, finals: Tensor) -> dict[str, Tensor]:
    """``[B, columns]`` for each page table, by its name: whether the column holds a page that attention reads.

    Args:
        starts, finals: host lengths of the rows before and with the step; a row without tokens is padding.
    """
    masks = {}
    for name, table in page_tables.items():
        if table is None or not name.endswith("_page_table"):
            continue
        pool = name.removesuffix("_page_table")
        page = tables.page_size_of(pool) * _TOKENS_OF_UNIT[pool]
        end = finals.long() // _TOKENS_OF_UNIT[pool] * _TOKENS_OF_UNIT[pool]
        first = (starts.long() - tables.sliding_window + 1).clamp(min=0) if pool == "swa" else torch.zeros_like(end)
        columns = torch.arange(table.shape[1]) * page
        masks[name] = (columns < end[:, None]) & (columns + page > first[:, None]) & (finals > starts)[:, None]
    return masks

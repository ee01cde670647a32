"""Keeping the full-to-swa mapping: wrapper and fake kernel of ``torch.ops.dsv4_npu_ops.map_full_to_swa``."""

import torch
from torch import Tensor

from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only

MAP_SOURCE_FIELD = 3
"""Field of a segment that says what the entries become."""

MAP_TABLE = 1
"""Its value for what the swa table holds."""


def map_full_to_swa(tables: RequestTables, segments: Tensor, full_to_swa: Tensor, *, num_items: int = 0) -> None:
    """Sets or clears the mapping entries of intervals of tokens, in one launch.

    ``KVAllocator`` with ``full_to_swa=True`` is what engines use; this op is its device half.

    Args:
        tables: page tables, int32, read only, with pages of one size in full and swa; full holds a page for every token
            of the intervals.
        segments: int32 ``[S + 17, 8]`` on the tables' device, one interval of one request a row:
            ``(request, begin_unit, end_unit, source, 0, 0, 0, units_before)``. Source 0 clears the entries, 1
            sets them to the tokens' swa slots, 0 where the swa table has no page. No two intervals name the same full
            slot.
            Behind them, 17 rows say where 64 parts of the list begin (the op's README).
        full_to_swa: int64 ``[slots of the full pool]`` on the tables' device, indexed by full slot; written.
        num_items: tokens of all intervals together, by which a device chooses how many cores share them; 0: not known.

    Raises:
        ValueError: wrong dtype, shape or device, or (on a CPU) a segment outside the tables, or a token without a full
            page of the mapping; nothing was written.

    Source: docs/spec.md, full-to-swa mapping.
    """
    torch.ops.dsv4_npu_ops.map_full_to_swa(
        tables.table("full"), tables.table("swa"), segments, full_to_swa, tables.page_size_of("full"), num_items
    )


fake_kernel("map_full_to_swa")(writes_only)

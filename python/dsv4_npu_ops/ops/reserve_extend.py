"""Carrying out an allocation: wrapper and fake kernel of ``torch.ops.dsv4_npu_ops.reserve_extend``."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dsv4_npu_ops.layout.out_cache_loc import OutCacheLoc
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.fake_kernels import fake_kernel


def reserve_extend(
    tables: RequestTables,
    free_pages: Tensor,
    segments: Tensor,
    num_pages: Sequence[int],
    num_slots: Sequence[int],
) -> OutCacheLoc:
    """Slots for the intervals that the host's ledger has decided on, in all pools, in one launch.

    ``KVAllocator`` is what engines call; this op is its device half.

    Args:
        tables: page tables, int32; one entry is written for each page that is taken, no others.
        free_pages: int32 ``[sum(num_pages)]`` page ids on the tables' device, the pools' rings one after another in
            table order. Only read: the ledger knows which entries are used up.
        segments: int32 ``[S + 17, 8]`` on the tables' device, one interval of one request and pool a row:
            ``(pool, request, begin_unit, end_unit, source, ring_position, out_begin, units_before)``. Source 0 reports
            the slots of pages that the table holds, 1 takes pages from ``ring_position`` on, 2 reports 0. Intervals do
            not overlap and none continues a page taken by another one.
            Behind them, 17 rows say where 64 parts of the list begin (the op's README).
        num_pages: entries of each pool's ring, in table order.
        num_slots: entries of each pool's output, in table order; the segments cover all of them.

    Returns:
        OutCacheLoc: int32 ``[num_slots[pool]]`` each.

    Raises:
        ValueError: wrong dtype, shape or device, or (on a CPU) a segment outside tables, rings or outputs, or one
            of a page that the table does not hold; nothing was written.

    Source: docs/spec.md, allocation.
    """
    page_tables, page_sizes = tables.page_tables
    return OutCacheLoc(
        *torch.ops.dsv4_npu_ops.reserve_extend(page_tables, free_pages, segments, num_pages, num_slots, page_sizes)
    )


@fake_kernel("reserve_extend")
def _(
    tables: Sequence[Tensor],
    free_pages: Tensor,
    segments: Tensor,
    num_pages: Sequence[int],
    num_slots: Sequence[int],
    page_sizes: Sequence[int],
) -> tuple[Tensor, ...]:
    return tuple(free_pages.new_empty((slots,)) for slots in num_slots)

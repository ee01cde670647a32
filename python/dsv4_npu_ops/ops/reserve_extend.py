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
        tables: request tables, int32; the entries of units that get a slot are written, no others.
        free_pages: int32 ``[sum(num_pages)]`` page ids on the tables' device, the pools' rings one after another in
            table order. Only read: the ledger knows which entries are used up.
        segments: int32 ``[S, 8]`` on the tables' device, one interval of one request and pool a row:
            ``(pool, request, begin_unit, end_unit, source, ring_position, out_begin, 0)``. Source 0 keeps and reports
            what the table holds, 1 continues the page of unit ``begin_unit - 1``, 2 takes pages from
            ``ring_position`` on. Intervals do not overlap and no interval continues a page taken by another one.
        num_pages: entries of each pool's ring, in table order.
        num_slots: entries of each pool's output, in table order; the segments cover all of them.

    Returns:
        OutCacheLoc: int32 ``[num_slots[pool]]`` each.

    Raises:
        ValueError: wrong dtype, shape or device, or (on a CPU) a segment outside tables, rings or outputs, or one
            that continues a page the table does not hold; nothing was written.

    Source: docs/spec.md, allocation.
    """
    return OutCacheLoc(
        *torch.ops.dsv4_npu_ops.reserve_extend(
            *tables.in_order(), free_pages, segments, num_pages, num_slots, tables.page_size
        )
    )


@fake_kernel("reserve_extend")
def _(
    full_table: Tensor,
    swa_table: Tensor,
    c4_table: Tensor,
    c128_table: Tensor,
    c4_state_table: Tensor,
    c128_state_table: Tensor,
    free_pages: Tensor,
    segments: Tensor,
    num_pages: Sequence[int],
    num_slots: Sequence[int],
    page_size: int,
) -> tuple[Tensor, ...]:
    return tuple(full_table.new_empty((slots,), dtype=torch.int32) for slots in num_slots)

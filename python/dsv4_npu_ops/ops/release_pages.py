"""Giving pages back: wrapper and fake kernel of ``torch.ops.dsv4_npu_ops.release_pages``."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only


def release_pages(
    tables: RequestTables, free_pages: Tensor, segments: Tensor, num_pages: Sequence[int], *, num_items: int = 0
) -> None:
    """Zeroes table entries and returns their pages to the free rings, in one launch; evict, free and restore use it.

    ``KVAllocator`` is what engines call; this op is its device half.

    Args:
        tables: page tables, int32; the entries of the intervals become 0, no others change.
        free_pages: int32 ``[sum(num_pages)]`` on the tables' device, the pools' rings one after another in table
            order; page ids are written to the entries that the segments name.
        segments: int32 ``[S + 17, 8]`` on the tables' device, one interval of one request and pool a row:
            ``(pool, request, begin_page, end_page, ring_position, 0, 0, pages_before)``. The pages of the interval,
            ascending, go to ``ring_position`` and the entries after it; -1 zeroes only.
            Behind them, 17 rows say where 64 parts of the list begin (the op's README).
        num_pages: entries of each pool's ring, in table order.
        num_items: pages of all intervals together, by which a device chooses how many cores share them; 0: not known.

    Raises:
        ValueError: wrong dtype, shape or device, or (on a CPU) a segment outside tables or rings, or a page that the
            table does not hold; nothing was written.

    Source: docs/spec.md, allocation.
    """
    page_tables, page_sizes = tables.page_tables
    torch.ops.dsv4_npu_ops.release_pages(page_tables, free_pages, segments, num_pages, page_sizes, num_items)


fake_kernel("release_pages")(writes_only)

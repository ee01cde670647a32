"""Starting requests on the pages of others: wrapper and fake kernel of ``torch.ops.dsv4_npu_ops.share_pages``."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.fake_kernels import fake_kernel


def share_pages(
    tables: RequestTables,
    free_pages: Tensor,
    segments: Tensor,
    num_pages: Sequence[int],
    num_copies: int,
    *,
    num_items: int = 0,
) -> tuple[Tensor, Tensor]:
    """Gives rows the pages of other rows, or a page of their own where the content is to be copied, in one launch.

    ``KVAllocator.share_prefix`` is what engines call; this op is its device half.

    Args:
        tables: page tables, int32; the entries of the intervals are written in the rows that get pages.
        free_pages: int32 ``[sum(num_pages)]`` page ids on the tables' device, the pools' rings one after another in
            table order. Only read.
        segments: int32 ``[S + 17, 8]`` on the tables' device, one interval of one pool a row:
            ``(pool, request, begin_page, end_page, source, ring_position, copy, pages_before)``. Ring position -1
            copies the entries of row ``source``; another one gives ``request`` that page for the interval, which is
            one page, and lists both pages at entry ``copy``.
            Behind them, 17 rows say where 64 parts of the list begin (the op's README).
        num_pages: entries of each pool's ring, in table order.
        num_copies: entries of the lists; the segments fill all of them.
        num_items: pages of all intervals together, by which a device chooses how many cores share them; 0: not known.

    Returns:
        int32 ``[num_copies]`` pages to copy from and to.

    Raises:
        ValueError: wrong dtype, shape or device, or (on a CPU) a segment outside tables, rings or lists, or a page
            that the source's row does not hold; nothing was written.

    Source: docs/spec.md, shared prefixes.
    """
    page_tables, page_sizes = tables.page_tables
    return torch.ops.dsv4_npu_ops.share_pages(
        page_tables, free_pages, segments, num_pages, num_copies, page_sizes, num_items
    )


@fake_kernel("share_pages")
def _(
    tables: Sequence[Tensor],
    free_pages: Tensor,
    segments: Tensor,
    num_pages: Sequence[int],
    num_copies: int,
    page_sizes: Sequence[int],
    num_items: int = 0,
) -> tuple[Tensor, Tensor]:
    pages = free_pages.new_empty((num_copies,))
    return pages, torch.empty_like(pages)

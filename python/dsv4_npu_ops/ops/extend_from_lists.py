"""Extending requests with pages from lists: wrapper and fake kernel of ``torch.ops.dsv4_npu_ops.extend_from_lists``."""

from typing import NamedTuple

import torch
from torch import Tensor

from dsv4_npu_ops.ops.caller_errors import caller_errors
from dsv4_npu_ops.ops.fake_kernels import fake_kernel

_needs = torch.ops.dsv4_npu_ops.extend_from_lists.needs


class ExtendNeeds(NamedTuple):
    """What ``extend_from_lists`` brings and takes: new tokens, groups of 4 and of 128 that they complete, pages of each
    list, and int64 ``[N, 3]`` (row of the call, begin, end) of the columns of ``c128_table`` that get new pages."""

    num_tokens: int
    num_c4: int
    num_c128: int
    full_pages: int
    swa_pages: int
    c128_pages: int
    new_columns: Tensor


@caller_errors({"page size of pool full": "page_size", "page size of pool c128": "c128_page_size"})
def extend_needs(
    prefix_lens: Tensor | None, seq_lens: Tensor, page_size: int, c128_page_size: int, *, swa_tail: int | None = None
) -> ExtendNeeds:
    """What ``extend_from_lists`` brings and takes, for capacity checks on the host before anything changes.

    Args:
        prefix_lens, seq_lens: ``[B]`` int32 or int64 host tensors: tokens before and with the new ones. Without
            ``prefix_lens`` each row brings one token.
        page_size, c128_page_size, swa_tail: as in ``extend_from_lists``.

    Raises:
        ValueError: wrong dtype, shape or device, or a bad row.

    Source: docs/spec.md, lists of free pages.
    """
    return ExtendNeeds(*_needs(prefix_lens, seq_lens, page_size, c128_page_size, swa_tail))


def extend_from_lists(
    req_pool_indices: Tensor,
    prefix_lens: Tensor | None,
    seq_lens: Tensor,
    last_loc: Tensor,
    full_pages: Tensor,
    swa_pages: Tensor,
    c128_pages: Tensor,
    full_to_swa: Tensor,
    c128_table: Tensor,
    c128_owners: Tensor,
    num_tokens: int,
    num_c4: int,
    num_c128: int,
    num_c128_pages: int,
    page_size: int,
    c128_page_size: int,
    *,
    swa_tail: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Slots of new tokens in an engine's own pools, with pages from its lists, in one launch.

    For engines that allocate by themselves: they have checked capacity, and drop the pages that were taken from their
    lists, whose numbers follow from the lengths. Row i gets the tokens ``[prefix_lens[i], seq_lens[i])``; a row without
    any is padding. A page that was started goes on; then rows take pages from the front of the lists, one row after
    another. No request stands in two rows.

    Args:
        req_pool_indices, prefix_lens, seq_lens: ``[B]`` int32 or int64 each: row of the table, tokens before and with
            the new ones. Without ``prefix_lens`` each row brings one token.
        last_loc: ``[B]`` int32 or int64 full slot of the last token before; looked at where it does not end a page.
        full_pages, swa_pages, c128_pages: int64 free pages, at least as many as are taken; only read.
        full_to_swa: int64 ``[slots of full]``; written at the new tokens' full slots, read at ``last_loc``.
        c128_table: int32 ``[requests, columns]`` pages of c128, rows at any stride; new pages are written.
        c128_owners: int32 ``[pages of c128]``; becomes 1 for each page that is taken.
        num_tokens, num_c4, num_c128, num_c128_pages: of all rows, new tokens, groups of 4 and of 128 that they
            complete, and pages that the latter take.
        page_size, c128_page_size: slots of a page of full and swa, and of c128.
        swa_tail: only the last so many tokens of each row get a swa slot, from a page's start on; the mapping has 0 for
            the others. Default: all.

    Returns:
        (full_loc, swa_loc, c4_loc, c128_loc, c128_replaced), int32 but for swa_loc, which is int64 as the mapping is.
        Groups of 4 lie in the full pool, in the space of four tokens: their slot is the full slot of the last one,
        divided by 4. The last are the entries of the table that new pages of c128 have replaced.

    Raises:
        ValueError: wrong dtype, shape or device, or (on a CPU) a bad row, a last slot that is not the one before the
            prefix, a bad page, too few pages or numbers that the rows do not add up to; nothing was written.

    Source: docs/spec.md, lists of free pages.
    """
    return torch.ops.dsv4_npu_ops.extend_from_lists(
        req_pool_indices,
        prefix_lens,
        seq_lens,
        last_loc,
        full_pages,
        swa_pages,
        c128_pages,
        full_to_swa,
        c128_table,
        c128_owners,
        num_tokens,
        num_c4,
        num_c128,
        num_c128_pages,
        page_size,
        c128_page_size,
        swa_tail,
    )


@fake_kernel("extend_from_lists")
def _(
    req_pool_indices: Tensor,
    prefix_lens: Tensor | None,
    seq_lens: Tensor,
    last_loc: Tensor,
    full_pages: Tensor,
    swa_pages: Tensor,
    c128_pages: Tensor,
    full_to_swa: Tensor,
    c128_table: Tensor,
    c128_owners: Tensor,
    num_tokens: int,
    num_c4: int,
    num_c128: int,
    num_c128_pages: int,
    page_size: int,
    c128_page_size: int,
    swa_tail: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return (
        full_to_swa.new_empty((num_tokens,), dtype=torch.int32),
        full_to_swa.new_empty((num_tokens,)),
        full_to_swa.new_empty((num_c4,), dtype=torch.int32),
        full_to_swa.new_empty((num_c128,), dtype=torch.int32),
        full_to_swa.new_empty((num_c128_pages,), dtype=torch.int32),
    )


@fake_kernel("extend_from_lists.needs")
def _(
    prefix_lens: Tensor | None, seq_lens: Tensor, page_size: int, c128_page_size: int, swa_tail: int | None = None
) -> tuple[torch.SymInt | Tensor, ...]:
    if seq_lens.device.type != "cpu":
        raise ValueError(f"extend_from_lists: seq_lens is on {seq_lens.device}, expected a host tensor (cpu)")
    context = torch.library.get_ctx()
    sizes = [context.new_dynamic_size() for _ in range(7)]
    return *sizes[:6], seq_lens.new_empty((sizes[6], 3), dtype=torch.int64)

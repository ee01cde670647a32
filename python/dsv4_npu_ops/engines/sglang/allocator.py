"""SGLang's allocator: all slots of an extend, a decode or a reservation by one launch, or nothing changed.

What is SGLang's stays so: its lists of free pages and their order, its mapping, the sidecar and the reference counts of
c128 pages, of which its radix tree owns some. The slots are those that its own functions would hand out.

Left to SGLang's own functions is what gives pages back. Which c128 pages lose their last owner stands on the device
only, and the list of free pages must grow by as many, so that SGLang reads the counts; and ``free`` finds the pages of
slots by ``torch.unique``. An extend gives pages back too where the sidecar holds some in the place of new ones, as when
the radix tree matched more than the prefix that the request starts from. ``c128_pages.py`` knows on the host where that
can be, so that nothing is read where it cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

import dsv4_npu_ops.ops  # noqa: F401  (loading it registers torch.ops.dsv4_npu_calls)
from dsv4_npu_ops.engines.hooks import Hook, Unexpected
from dsv4_npu_ops.engines.sglang import c128_pages
from dsv4_npu_ops.engines.sglang.allocator_shadow import beside_allocation

_extend_from_lists = torch.ops.dsv4_npu_calls.extend_from_lists.default._op
_KNOWN = "_dsv4_npu_ops_known"  # of an allocator: its pools, once they were looked at
_ALLOCATOR = "sglang.srt.hardware_backend.npu.dsv4.dsv4_allocator.DSV4NPUTokenToKVPoolAllocator"


def alloc_extend(
    original: Callable[..., Any],
    self: Any,
    prefix_lens: Tensor,
    prefix_lens_cpu: Tensor,
    seq_lens: Tensor,
    seq_lens_cpu: Tensor,
    last_loc: Tensor,
    extend_num_tokens: int,
    *,
    req_pool_indices: Tensor | None = None,
    req_to_token_pool: Any = None,
) -> Any:
    """``alloc_extend``: chunks of prefills, and the reservations of speculative decoding in whole pages."""
    rows = (req_pool_indices, prefix_lens, seq_lens, last_loc)
    return _extend(self, req_to_token_pool, rows, (prefix_lens_cpu, seq_lens_cpu), extend_num_tokens)


def alloc_decode(
    original: Callable[..., Any],
    self: Any,
    seq_lens: Tensor,
    seq_lens_cpu: Tensor,
    last_loc: Tensor,
    *,
    req_pool_indices: Tensor | None = None,
    req_to_token_pool: Any = None,
) -> Any:
    """``alloc_decode``: one token a row. SGLang's own keeps pages of full when swa has none left."""
    rows = (req_pool_indices, None, seq_lens, last_loc)
    return _extend(self, req_to_token_pool, rows, (None, seq_lens_cpu), seq_lens.shape[0])


def alloc_extend_swa_tail(
    original: Callable[..., Any],
    self: Any,
    prefix_lens: Tensor,
    prefix_lens_cpu: Tensor,
    seq_lens: Tensor,
    seq_lens_cpu: Tensor,
    last_loc: Tensor,
    extend_num_tokens: int,
    swa_tail_len: int,
    *,
    req_pool_indices: Tensor | None = None,
    req_to_token_pool: Any = None,
) -> Any:
    """``alloc_extend_swa_tail``: a decode instance's reservation of a prompt, with swa slots for its window only."""
    # SGLang counts a tail's pages from the tail's start, so that slot and token agree only from a page's start on.
    if not isinstance(seq_lens_cpu, Tensor) or seq_lens_cpu.shape != (1,) or not 0 <= swa_tail_len <= extend_num_tokens:
        raise Unexpected("a swa tail of other than one request, or longer than what is new")
    if swa_tail_len and (seq_lens_cpu.tolist()[0] - swa_tail_len) % self.page_size:
        raise Unexpected("a swa tail that does not start at a page")
    rows = (req_pool_indices, prefix_lens, seq_lens, last_loc)
    return _extend(self, req_to_token_pool, rows, (prefix_lens_cpu, seq_lens_cpu), extend_num_tokens, swa_tail_len)


def _extend(
    allocator: Any,
    request_pool: Any,
    rows: tuple[Any, ...],
    host_lens: tuple[Tensor | None, Tensor],
    num_tokens: int,
    swa_tail: int | None = None,
) -> Any:
    """SGLang's bundle, or None when a pool is short. rows: as the op takes them; host_lens: prefixes and lengths."""
    requests, prefix_lens, seq_lens, last_loc = rows
    prefix_lens_cpu, seq_lens_cpu = host_lens
    if request_pool is None or requests is None:
        raise Unexpected("no req_pool_indices or req_to_token_pool")
    for lens in host_lens if prefix_lens is not None else host_lens[1:]:
        if not (isinstance(lens, Tensor) and lens.is_cpu):
            raise Unexpected("lengths that are no vector on the host")
    full, swa, c128 = _pools(allocator)
    c128_pages.track(allocator, request_pool)
    # No function around the call: between SGLang's own steps Python runs from cold memory, where each one counts.
    try:
        extended, num_c128, full_pages, swa_pages, num_c128_pages, new_columns = _extend_from_lists(
            requests,
            prefix_lens,
            seq_lens,
            last_loc,
            full.free_pages,
            swa.free_pages,
            c128.free_pages,
            allocator.full_to_swa_index_mapping,
            request_pool.req_to_c128_sidecar,
            allocator.c128_page_refcount,
            prefix_lens_cpu,
            seq_lens_cpu,
            num_tokens,
            allocator.page_size,
            c128.page_size,
            swa_tail,
        )
    except ValueError as error:
        raise Unexpected(str(error)) from None
    if not extended:
        if not _merge((full, full_pages), (swa, swa_pages), (c128, num_c128_pages)):
            return None
        return _extend(allocator, request_pool, rows, host_lens, num_tokens, swa_tail)
    full_loc, swa_loc, c4_loc, c128_loc, replaced, full.free_pages, swa.free_pages, c128.free_pages = extended
    # As SGLang has it where no group is completed, its type included.
    bundle = _bundle_type()(full_loc, swa_loc, c4_loc, c128_loc if num_c128 else allocator._empty_loc)
    c128_pages.mark_written(bundle, request_pool, replaced, new_columns)
    return bundle


def _merge(*needed: tuple[Any, int]) -> bool:
    """Merges the pages that were given back into lists that are short; False, and nothing done, where that is not
    enough. needed: pools, and the pages that each is asked for."""
    short = [(pool, count) for pool, count in needed if count > pool.free_pages.shape[0]]
    if any(count > pool.available_size() // pool.page_size for pool, count in short):
        return False
    for pool, count in short:
        pool.merge_and_sort_free()
        if count > pool.free_pages.shape[0]:
            raise Unexpected("an allocator with fewer free pages than it says are available")
    return True


@cache
def _bundle_type() -> Callable[..., Any]:
    from sglang.srt.model_executor.forward_batch_info import DSV4OutCacheLoc

    return DSV4OutCacheLoc  # type: ignore[no-any-return]


def _pools(allocator: Any) -> tuple[Any, Any, Any]:
    """Those of full, swa and c128.

    Raises:
        Unexpected: they are not paged as SGLang's NPU allocator does it.
    """
    pools = allocator.full_attn_allocator, allocator.swa_attn_allocator, allocator.c128_attn_allocator
    full, swa, c128 = pools
    known = allocator.__dict__.get(_KNOWN)
    if known is None or known[0] is not full or known[1] is not swa or known[2] is not c128:
        if getattr(allocator, "_swa_req_ring", False):
            raise Unexpected("a swa ring of the request")
        if not (type(full) is type(swa) is type(c128) and full.page_size == swa.page_size == allocator.page_size):
            raise Unexpected("allocators of different kinds or page sizes")
        setattr(allocator, _KNOWN, pools)
    if full.debug_mode or swa.debug_mode or c128.debug_mode:
        raise Unexpected("SGLANG_DEBUG_MEMORY_POOL, whose checks are SGLang's own")
    return pools


HOOKS = (
    tuple(
        Hook(f"{_ALLOCATOR}.{replacement.__name__}", replacement, "0.5.18", "0.5.23", beside_allocation(replacement))
        for replacement in (alloc_extend, alloc_decode, alloc_extend_swa_tail)
    )
    + c128_pages.HOOKS
)

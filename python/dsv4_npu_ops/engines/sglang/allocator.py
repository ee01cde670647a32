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
from typing import Any, NamedTuple

from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected
from dsv4_npu_ops.engines.sglang import c128_pages
from dsv4_npu_ops.ops import extend_from_lists

_C4, _C128 = 4, 128
_ALLOCATOR = "sglang.srt.hardware_backend.npu.dsv4.dsv4_allocator.DSV4NPUTokenToKVPoolAllocator"


class _Needs(NamedTuple):
    """What the rows of a call bring and take: tokens, groups of 4 and 128, pages."""

    tokens: int
    c4: int
    c128: int
    full_pages: int
    swa_pages: int
    new_columns: list[tuple[int, int, int]]
    """(row of the batch, begin, end) of the columns of the sidecar that get new pages."""

    @property
    def c128_pages(self) -> int:
        return sum(end - begin for _, begin, end in self.new_columns)


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
    return _extend(self, req_to_token_pool, rows, _pairs(prefix_lens_cpu, seq_lens_cpu), extend_num_tokens)


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
    lengths = _host_list(seq_lens_cpu)
    host_rows = [(length - 1, length) for length in lengths]
    return _extend(self, req_to_token_pool, (req_pool_indices, None, seq_lens, last_loc), host_rows, len(lengths))


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
    host_rows = _pairs(prefix_lens_cpu, seq_lens_cpu)
    # SGLang counts a tail's pages from the tail's start, so that slot and token agree only from a page's start on.
    if len(host_rows) != 1 or not 0 <= swa_tail_len <= extend_num_tokens:
        raise Unexpected("a swa tail of other than one request, or longer than what is new")
    if swa_tail_len and (host_rows[0][1] - swa_tail_len) % self.page_size:
        raise Unexpected("a swa tail that does not start at a page")
    rows = (req_pool_indices, prefix_lens, seq_lens, last_loc)
    return _extend(self, req_to_token_pool, rows, host_rows, extend_num_tokens, swa_tail_len)


def _extend(
    allocator: Any,
    request_pool: Any,
    rows: tuple[Any, ...],
    host_rows: list[tuple[int, int]],
    num_tokens: int,
    swa_tail: int | None = None,
) -> Any:
    """SGLang's bundle, or None when a pool is short. rows: as the op takes them; host_rows: prefix and final length."""
    _check_known(allocator, request_pool, rows, len(host_rows))
    full, swa, c128 = allocator.full_attn_allocator, allocator.swa_attn_allocator, allocator.c128_attn_allocator
    needs = _needs(host_rows, allocator.page_size, c128.page_size, swa_tail)
    if needs.tokens != num_tokens:
        raise Unexpected("extend_num_tokens that is not the sum of the rows")
    num_c128_pages = needs.c128_pages
    taken = [(pool, n) for pool, n in ((full, needs.full_pages), (swa, needs.swa_pages), (c128, num_c128_pages)) if n]
    short = [(pool, count) for pool, count in taken if count > pool.free_pages.shape[0]]
    for pool, count in short:
        if count > pool.available_size() // pool.page_size:
            return None
    requests, prefix_lens, seq_lens, last_loc = rows
    if num_c128_pages:
        c128_pages.track(allocator, request_pool)
    for pool, _ in short:
        pool.merge_and_sort_free()
    try:
        *loc, replaced = extend_from_lists(
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
            needs.tokens,
            needs.c4,
            needs.c128,
            num_c128_pages,
            allocator.page_size,
            c128.page_size,
            swa_tail=swa_tail,
        )
    except ValueError as error:
        raise Unexpected(str(error)) from None
    for pool, count in taken:
        pool.free_pages = pool.free_pages[count:]
    # As SGLang has it where no group is completed, its type included.
    loc[3] = loc[3] if needs.c128 else allocator._empty_loc
    from sglang.srt.model_executor.forward_batch_info import DSV4OutCacheLoc

    bundle = DSV4OutCacheLoc(*loc)
    c128_pages.mark_written(bundle, request_pool, replaced, needs.new_columns)
    return bundle


def _check_known(allocator: Any, request_pool: Any, rows: tuple[Any, ...], count: int) -> None:
    """Raises Unexpected unless the pools are paged as SGLang's NPU allocator does it."""
    if request_pool is None or rows[0] is None:
        raise Unexpected("no req_pool_indices or req_to_token_pool")
    for row in rows:
        if row is not None and row.shape[0] != count:
            raise Unexpected("rows of different numbers on host and device")
    if getattr(allocator, "_swa_req_ring", False):
        raise Unexpected("a swa ring of the request")
    full, swa, c128 = allocator.full_attn_allocator, allocator.swa_attn_allocator, allocator.c128_attn_allocator
    alike = type(full) is type(swa) is type(c128) and full.page_size == swa.page_size == allocator.page_size
    if not alike:
        raise Unexpected("allocators of different kinds or page sizes")
    if full.debug_mode or swa.debug_mode or c128.debug_mode:
        raise Unexpected("SGLANG_DEBUG_MEMORY_POOL, whose checks are SGLang's own")


def _needs(host_rows: list[tuple[int, int]], page_size: int, c128_page_size: int, swa_tail: int | None) -> _Needs:
    tokens = c4 = c128 = full_pages = 0
    new_columns = []
    for i, (prefix, seq) in enumerate(host_rows):
        if prefix == seq:
            continue
        if not 0 <= prefix < seq:
            raise Unexpected("a negative length, or one shorter than its prefix")
        tokens += seq - prefix
        c4 += seq // _C4 - prefix // _C4
        full_pages += -(-seq // page_size) - -(-prefix // page_size)
        first, end = prefix // _C128, seq // _C128
        if first < end:
            c128 += end - first
            begin_column, end_column = -(-first // c128_page_size), -(-end // c128_page_size)
            if begin_column < end_column:
                new_columns.append((i, begin_column, end_column))
    swa_pages = full_pages if swa_tail is None else -(-swa_tail // page_size)
    return _Needs(tokens, c4, c128, full_pages, swa_pages, new_columns)


def _pairs(prefix_lens_cpu: Tensor, seq_lens_cpu: Tensor) -> list[tuple[int, int]]:
    prefixes, seqs = _host_list(prefix_lens_cpu), _host_list(seq_lens_cpu)
    if len(prefixes) != len(seqs):
        raise Unexpected("prefix_lens_cpu and seq_lens_cpu of different lengths")
    return list(zip(prefixes, seqs, strict=True))


def _host_list(lengths: Any) -> list[int]:
    if not isinstance(lengths, Tensor) or lengths.device.type != "cpu" or lengths.dim() != 1:
        raise Unexpected("lengths that are no vector on the host")
    return lengths.tolist()


HOOKS = (
    tuple(
        Hook(f"{_ALLOCATOR}.{replacement.__name__}", replacement, "0.5.18", "0.5.23")
        for replacement in (alloc_extend, alloc_decode, alloc_extend_swa_tail)
    )
    + c128_pages.HOOKS
)

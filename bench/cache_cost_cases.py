"""Cost cases of the ops that allocate, and of those that read and write tables for it."""

import torch
from bench_reserve_extend import PAGE_SIZE, make_allocator
from bench_write_req_tables import empty_tables
from moved import CostCase, Moved, completed_groups, nbytes
from op_arguments import OpArguments
from torch_step import committed_lengths

import dsv4_npu_ops
from dsv4_npu_ops import OutCacheLoc
from dsv4_npu_ops.layout import POOLS, RAW_TOKENS_PER_SLOT

PART_ROWS = 17
"""Rows of a list behind its segments."""
TAKE_PAGES, NO_SLOTS = 1, 2
"""Sources of a segment of reserve_extend."""


def _grown(rows: int, length: int, reserve: int) -> dsv4_npu_ops.KVAllocator:
    alloc = make_allocator(rows, length + reserve)
    alloc.alloc_extend(list(range(rows)), [0] * rows, [length] * rows)
    return alloc


def reserve_extend(rows: int, length: int, tokens: int, form: str) -> CostCase:
    alloc = _grown(rows, length, tokens) if length else make_allocator(rows, tokens)

    def run() -> Moved:
        requests, prefixes, ends = list(range(rows)), [length] * rows, [length + tokens] * rows
        with OpArguments("dsv4_npu_ops::reserve_extend") as op:
            extend = alloc.alloc_extend if form == "prefill" else alloc.reserve_extend
            loc = extend(requests, prefixes, ends)
        segments = op.arguments[2][:-PART_ROWS]
        begin, end, source = segments[:, 2], segments[:, 3], segments[:, 4]
        pages = (end + PAGE_SIZE - 1) // PAGE_SIZE - begin // PAGE_SIZE
        # Pages of kept and joined units come from the tables, taken ones from the rings and go to the tables.
        read, taken = int(pages[source != NO_SLOTS].sum()), int(pages[source == TAKE_PAGES].sum())
        slots = nbytes(loc.in_order())
        outputs = [*loc.in_order(), *alloc.tables.op_tables]
        return Moved(outputs, segments.nbytes + 4 * read, slots + 4 * taken, 0, slots // 4 + taken)

    return CostCase("reserve_extend", f"{form} B={rows} L={length} n={tokens}", rows, run)


def release_pages(rows: int, length: int, form: str) -> CostCase:
    alloc = _grown(rows, length, 4096 if form == "evict" else 0)
    requests = list(range(rows))
    if form == "evict":
        alloc.reserve_extend(requests, [length] * rows, [length + 4096] * rows)

    def run() -> Moved:
        with OpArguments("dsv4_npu_ops::release_pages") as op:
            if form == "evict":
                alloc.evict(requests, [length + 4000] * rows)
            else:
                alloc.free(requests)
        segments = op.arguments[2][:-PART_ROWS]
        pages = int((segments[:, 3] - segments[:, 2]).sum())
        outputs = [*alloc.tables.op_tables, op.arguments[1]]
        return Moved(outputs, segments.nbytes + 4 * pages, 8 * pages, 0, 2 * pages)

    return CostCase("release_pages", f"{form} B={rows} L={length}", rows, run)


def write_req_tables(rows: int, context: int, tokens: int, kind: str) -> CostCase:
    tables = empty_tables(rows, context, kind)
    requests, starts = committed_lengths(rows, context - tokens)
    ends = starts + tokens
    units = dict.fromkeys(POOLS, rows * tokens) | dict(zip(("c4", "c128"), completed_groups(starts, ends), strict=True))
    loc = OutCacheLoc(*(torch.arange(1, units[pool] + 1, dtype=torch.int32) for pool in POOLS))

    def run() -> Moved:
        dsv4_npu_ops.write_req_tables(tables, requests, starts, ends, loc)
        entries = nbytes(loc.in_order()) // 4 if kind == "slots" else pages_written(starts, ends)
        row_bytes = nbytes((requests, starts, ends))
        return Moved(tables.op_tables, 4 * entries, 4 * entries, row_bytes, entries)

    return CostCase("write_req_tables", f"{kind} B={rows} n={tokens}", rows, run)


def pages_written(starts: torch.Tensor, ends: torch.Tensor) -> int:
    """Entries of page tables that the rows touch, one slot read for each."""
    total = 0
    for ratio in (RAW_TOKENS_PER_SLOT[pool] for pool in POOLS):
        begin, end = starts // ratio, ends // ratio
        pages = (end + PAGE_SIZE - 1) // PAGE_SIZE - begin // PAGE_SIZE
        total += int(pages[end > begin].sum())
    return total


def map_full_to_swa(rows: int, length: int, tokens: int, form: str) -> CostCase:
    """The launch behind an allocation of ``tokens`` each, or before a free."""
    plain = make_allocator(rows, length + tokens)
    alloc = dsv4_npu_ops.KVAllocator(plain.layout, plain.tables, full_to_swa=True)
    requests, ends = list(range(rows)), [length + tokens] * rows
    if length:
        alloc.alloc_extend(requests, [0] * rows, [length] * rows)
    with OpArguments("dsv4_npu_ops::map_full_to_swa") as op:
        if form == "verify":
            alloc.reserve_extend(requests, [length] * rows, ends)
        else:
            alloc.alloc_extend(requests, [length] * rows, ends)
    work = op.arguments[2].clone()
    segments = work[:-PART_ROWS]
    if form == "free":
        segments[:, 3] = 0

    def run() -> Moved:
        begin, end = segments[:, 1], segments[:, 2]
        units, pages = int((end - begin).sum()), (end + PAGE_SIZE - 1) // PAGE_SIZE - begin // PAGE_SIZE
        dsv4_npu_ops.ops.map_full_to_swa(alloc.tables, work, alloc.full_to_swa, num_items=units)
        entries = int((pages * (1 + segments[:, 3])).sum())
        return Moved([alloc.full_to_swa], segments.nbytes + 4 * entries, 8 * units, 0, units)

    return CostCase("map_full_to_swa", f"{form} B={rows} L={length} n={tokens}", rows, run)


def share_pages(rows: int, length: int) -> CostCase:
    """Requests that start on the cached tokens of one more request."""
    alloc = make_allocator(rows + 1, length)
    alloc.alloc_extend([0], [0], [length])
    targets = list(range(1, rows + 1))

    def run() -> Moved:
        with OpArguments("dsv4_npu_ops::share_pages") as op:
            shared = alloc.share_prefix([0] * rows, targets, [length] * rows)
        segments = op.arguments[2][:-PART_ROWS]
        begin, end, copies = segments[:, 2], segments[:, 3], segments[:, 5] >= 0
        entries, copied = int((end - begin).sum()), int(copies.sum())
        # Whatever many requests take over is read once. A copy reads two pages and writes them to the lists.
        taken = torch.unique(segments[~copies][:, [0, 2, 3]], dim=0)
        read = int((taken[:, 2] - taken[:, 1]).sum()) + 2 * copied
        lists = [pages for pool in shared.copies.values() for pages in pool]
        outputs = [*alloc.tables.op_tables, *lists]
        return Moved(outputs, segments.nbytes + 4 * read, 4 * entries + nbytes(lists), 0, entries + 2 * copied)

    return CostCase("share_pages", f"B={rows} L={length}", rows, run)


def c4_slots_from_full(rows: int, tokens: int) -> CostCase:
    alloc = make_allocator(rows, tokens)
    full_slots = alloc.alloc_extend(list(range(rows)), [0] * rows, [tokens] * rows).out_full_loc
    out = torch.empty(rows * (tokens // 4), dtype=torch.int32)

    def run() -> Moved:
        dsv4_npu_ops.c4_slots_from_full(full_slots, out=out)
        return Moved([out], full_slots.nbytes, out.nbytes, 0, out.numel())

    return CostCase("c4_slots_from_full", f"B={rows} n={tokens}", 0, run)

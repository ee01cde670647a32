"""Cost cases of the ops that allocate, and of those that read and write tables for it."""

import torch
from bench_reserve_extend import make_allocator
from moved import CostCase, Moved, completed_groups, nbytes
from op_arguments import OpArguments
from torch_step import POOLS, committed_lengths, filled_tables

import dsv4_npu_ops
from dsv4_npu_ops import OutCacheLoc


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
        segments = op.arguments[7]
        begin, end, source = segments[:, 2], segments[:, 3], segments[:, 4]
        units, pages = end - begin, (end + 127) // 128 - begin // 128
        kept, joined, taken = (int((units * (source == s)).sum()) for s in range(3))
        entries = kept + int((source == 1).sum()) + int((pages * (source == 2)).sum())
        outputs = [*loc.in_order(), *alloc.tables.in_order()]
        written = nbytes(loc.in_order()) + 4 * (joined + taken)
        return Moved(outputs, segments.nbytes + 4 * entries, written, 0, kept + 2 * (joined + taken))

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
        segments = op.arguments[7]
        begin, end = segments[:, 2], segments[:, 3]
        units = int((end - begin).sum())
        pages = int(((end + 127) // 128 - begin // 128)[segments[:, 4] >= 0].sum())
        outputs = [*alloc.tables.in_order(), op.arguments[6]]
        return Moved(outputs, segments.nbytes + 4 * pages, 4 * (units + pages), 0, units + pages)

    return CostCase("release_pages", f"{form} B={rows} L={length}", rows, run)


def write_req_tables(rows: int, context: int, tokens: int) -> CostCase:
    tables = filled_tables(rows, context)
    requests, starts = committed_lengths(rows, context - tokens)
    ends = starts + tokens
    units = dict.fromkeys(POOLS, rows * tokens) | dict(zip(("c4", "c128"), completed_groups(starts, ends), strict=True))
    loc = OutCacheLoc(*(torch.arange(1, units[pool] + 1, dtype=torch.int32) for pool in POOLS))

    def run() -> Moved:
        dsv4_npu_ops.write_req_tables(tables, requests, starts, ends, loc)
        slots = nbytes(loc.in_order())
        return Moved(tables.in_order(), slots, slots, nbytes((requests, starts, ends)), slots // 4)

    return CostCase("write_req_tables", f"B={rows} n={tokens}", rows, run)


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
    segments = op.arguments[2].clone()
    if form == "free":
        segments[:, 3] = 0

    def run() -> Moved:
        begin, end = segments[:, 1], segments[:, 2]
        units, pages = int((end - begin).sum()), int(((end + 127) // 128 - begin // 128).sum())
        dsv4_npu_ops.ops.map_full_to_swa(alloc.tables, segments, alloc.full_to_swa, num_units=units)
        # A page of the full table is known by its first slot.
        entries = pages + int(((end - begin) * segments[:, 3]).sum())
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
        segments = op.arguments[7]
        begin, end, copies = segments[:, 2], segments[:, 3], segments[:, 5] >= 0
        units, copied = int((end - begin).sum()), int(copies.sum())
        # Whatever many requests take over is read once. A copy reads two pages and writes them to the lists.
        taken = torch.unique(segments[~copies][:, [0, 2, 3]], dim=0)
        read = int((taken[:, 2] - taken[:, 1]).sum()) + 2 * copied
        lists = [pages for pool in shared.copies.values() for pages in pool]
        outputs = [*alloc.tables.in_order(), *lists]
        return Moved(outputs, segments.nbytes + 4 * read, 4 * units + nbytes(lists), 0, units + 2 * copied)

    return CostCase("share_pages", f"B={rows} L={length}", rows, run)


def c4_slots_from_full(rows: int, tokens: int) -> CostCase:
    alloc = make_allocator(rows, tokens)
    full_slots = alloc.alloc_extend(list(range(rows)), [0] * rows, [tokens] * rows).out_full_loc
    out = torch.empty(rows * (tokens // 4), dtype=torch.int32)

    def run() -> Moved:
        dsv4_npu_ops.c4_slots_from_full(full_slots, out=out)
        return Moved([out], full_slots.nbytes, out.nbytes, 0, out.numel())

    return CostCase("c4_slots_from_full", f"B={rows} n={tokens}", 0, run)

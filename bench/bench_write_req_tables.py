"""Table writes of a step against one slice assignment a request and pool."""

from collections.abc import Iterator

import torch
from harness import Case
from torch_step import committed_lengths

import dsv4_npu_ops
from dsv4_npu_ops.layout import POOLS, RAW_TOKENS_PER_SLOT, PageTable, SlotTable

PAGE_SIZE = 128


def empty_tables(rows: int, context: int, kind: str) -> dsv4_npu_ops.RequestTables:
    """Tables of "slots" or of "pages" in all pools."""
    pools = {}
    for pool in POOLS:
        units = max(1, context // RAW_TOKENS_PER_SLOT[pool])
        columns = units if kind == "slots" else -(-units // PAGE_SIZE)
        table = torch.zeros(rows, columns, dtype=torch.int32)
        pools[pool] = SlotTable(table, PAGE_SIZE) if kind == "slots" else PageTable(table, PAGE_SIZE)
    return dsv4_npu_ops.RequestTables.of(pools, max_context_len=context)


def write_case(batch: int, context: int, width: int, kind: str) -> Case:
    """Every request's slots of `width` new tokens, in all six pools."""
    tables = empty_tables(batch, context + width, kind)
    requests, starts = committed_lengths(batch, context)
    ends = starts + width
    counts = {pool: int((ends // u - starts // u).sum()) for pool, u in RAW_TOKENS_PER_SLOT.items()}
    slots = {pool: torch.arange(PAGE_SIZE, PAGE_SIZE + count, dtype=torch.int32) for pool, count in counts.items()}
    loc = dsv4_npu_ops.OutCacheLoc(*(slots[pool] for pool in POOLS))

    def slice_by_slice() -> None:
        for pool in POOLS:
            table, ratio, done = tables.table(pool), RAW_TOKENS_PER_SLOT[pool], 0
            for request, start, end in zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=True):
                begin, stop = start // ratio, end // ratio
                own = slots[pool][done : done + stop - begin]
                if kind == "slots":
                    table[request, begin:stop] = own
                elif begin < stop:
                    first = [0, *range(-begin % PAGE_SIZE or PAGE_SIZE, stop - begin, PAGE_SIZE)]
                    pages = slice(begin // PAGE_SIZE, begin // PAGE_SIZE + len(first))
                    table[request, pages] = own[first] // PAGE_SIZE
                done += stop - begin

    return Case(
        "write_req_tables",
        f"B={batch} L<={context} n={width} six pools of {kind}",
        lambda: dsv4_npu_ops.write_req_tables(tables, requests, starts, ends, loc),
        slice_by_slice,
        "a slice a request and pool",
    )


def cases() -> Iterator[Case]:
    """A verify step, a large batch, and prefill chunks."""
    for kind in ("slots", "pages"):
        yield write_case(64, 8192, 4, kind)
        yield write_case(1024, 1024, 4, kind)
        yield write_case(32, 2048, 1024, kind)

"""Table writes of a step against one slice assignment a request and pool."""

from collections.abc import Iterator

from harness import Case
from torch_step import POOLS, RATIO, committed_lengths, filled_tables, flatten_bundle

import dsv4_npu_ops


def write_case(batch: int, context: int, width: int) -> Case:
    """Every request's slots of `width` new tokens, in all six pools."""
    tables = filled_tables(batch, context + width)
    requests, starts = committed_lengths(batch, context)
    ends = starts + width
    slots = flatten_bundle(tables, requests, starts, width)
    loc = dsv4_npu_ops.OutCacheLoc(*(slots[pool] for pool in POOLS))

    def slice_by_slice() -> None:
        for pool in POOLS:
            table, ratio, done = getattr(tables, pool), RATIO[pool], 0
            for request, start, end in zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=True):
                begin, stop = start // ratio, end // ratio
                table[request, begin:stop] = slots[pool][done : done + stop - begin]
                done += stop - begin

    return Case(
        "write_req_tables",
        f"B={batch} L<={context} n={width} six pools",
        lambda: dsv4_npu_ops.write_req_tables(tables, requests, starts, ends, loc),
        slice_by_slice,
        "a slice a request and pool",
    )


def cases() -> Iterator[Case]:
    """A verify step, a large batch, and prefill chunks."""
    yield write_case(64, 8192, 4)
    yield write_case(1024, 1024, 4)
    yield write_case(32, 2048, 1024)

"""SGLang's own allocator beside the plug-in's, in one process: python bench/engines_sglang_allocator.py

An allocation with its table writes, on pools that are put back after each call. What SGLang does around it on both
sides alike, such as the slots in ``req_to_token``, is left out. Operations and time as in ``engines_sglang.py``.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine_table import operations, print_header, print_row

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

RESERVE = 8
"""Tokens that a step of four reserves: those of this step and of the next."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="0.5.23")
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--context", type=int, default=8192)
    arguments = parser.parse_args()
    os.environ["SGLANG_VERSION"] = arguments.version
    print_header(f"SGLang {arguments.version}", f"context {arguments.context}, medians")
    for rows in arguments.rows:
        for name, make in cases(rows, arguments.context):
            theirs = make()
            with plug_in():
                ours = make()
                after = operations(ours.call_and_undo)
            before = operations(theirs.call_and_undo)
            slow, fast = medians(theirs, ours)
            print_row(name, rows, before, slow, after, fast, slow / fast)


class Allocation:
    """One allocation with its table writes, which can be taken back.

    The functions are those that are in place when it is made, as in an engine that has loaded the plug-in or not:
    putting them into their classes for every call would make Python forget what it knows of these.
    """

    def __init__(self, lengths: list[int], ends: list[int], *, decode: bool = False) -> None:
        import torch
        from engines.sglang.allocations import PAGE, Pools
        from engines.sglang.world import sgl

        from dsv4_npu_ops.engines.sglang import c128_pages

        pages = sum(-(-end // PAGE) for end in ends) + 1
        rows = list(range(1, len(ends) + 1))
        self.pools = pools = Pools(len(rows), max(ends) + PAGE, pages, pages, pages)
        for row, length in zip(rows, lengths, strict=True):
            pools.start(row)
            pools.extend([(row, length)])
        index = torch.tensor(rows)
        prefix, seq = torch.tensor(lengths), torch.tensor(ends)
        last = pools.pool.req_to_token[index, prefix - 1].to(torch.int64)
        tables = dict(req_pool_indices=index, req_to_token_pool=pools.pool)
        total = int((seq - prefix).sum())
        alloc_decode, alloc_extend = pools.allocator.alloc_decode, pools.allocator.alloc_extend
        write_decode, write_extend = sgl.hooks.maybe_write_dsv4_decode, sgl.hooks.maybe_write_dsv4_extend

        def call() -> None:
            if decode:
                bundle = alloc_decode(seq, seq, last, **tables)
            else:
                bundle = alloc_extend(prefix, prefix, seq, seq, last, total, **tables)
            batch = SimpleNamespace(out_cache_loc_dsv4=bundle, req_pool_indices_cpu=index, **tables)
            if decode:
                write_decode(batch, seq, 1)
            else:
                write_extend(batch, index, prefix, seq)

        self.call = call
        self._lists = pools.free_lists()
        # What the plug-in reads once, when it starts.
        self._columns = c128_pages._columns_in_use(pools.pool.req_to_c128_sidecar)
        # Not the mapping, which the next call writes as this one: copying it would empty the caches.
        tables_to_restore = (pools.pool.req_to_c128_sidecar, pools.allocator.c128_page_refcount)
        self._tables = [(table, table.clone()) for table in tables_to_restore]

    def undo(self) -> None:
        """The pools as they were."""
        from dsv4_npu_ops.engines.sglang import c128_pages

        for part, pages in self._lists:
            part.free_pages = pages
        for table, before in self._tables:
            table.copy_(before)
        setattr(self.pools.pool, c128_pages._COLUMNS, list(self._columns))

    def call_and_undo(self) -> None:
        """Once; what is counted is the call."""
        self.call()
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes():
            self.undo()


def cases(rows: int, context: int) -> list[tuple[str, Callable[[], Allocation]]]:
    """Names, and what makes one side of each."""
    import torch

    torch.set_num_threads(1)
    whole = [context] * rows
    one_in_32 = [context - (0 if i % 32 == 0 else 64) for i in range(rows)]
    rounded = [-(-(length + RESERVE) // 128) * 128 for length in one_in_32]
    started = [-(-length // 128) * 128 for length in one_in_32]
    chunk = min(1024, context // 4)
    ragged = [context - chunk - 3 * i for i in range(rows)]
    return [
        ("reserve, a page each", lambda: Allocation(whole, [length + 128 for length in whole])),
        (
            "reserve, one row in 32",
            lambda: Allocation(started, [max(a, b) for a, b in zip(started, rounded, strict=True)]),
        ),
        ("decode", lambda: Allocation([n - 1 for n in one_in_32], one_in_32, decode=True)),
        (f"prefill, chunks of {chunk}", lambda: Allocation(ragged, [length + chunk for length in ragged])),
    ]


def plug_in() -> Any:
    """Our functions in the places of SGLang's."""
    from engines.sglang.allocations import ours

    return ours()


def medians(theirs: Allocation, ours: Allocation, rounds: int = 100) -> list[float]:
    """Microseconds of each call, taken in turns."""
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        times[0].append(timed(theirs))
        times[1].append(timed(ours))
    return [statistics.median(taken) * 1e6 for taken in times]


def timed(allocation: Allocation) -> float:
    began = time.thread_time()
    allocation.call()
    taken = time.thread_time() - began
    allocation.undo()
    return taken


if __name__ == "__main__":
    main()

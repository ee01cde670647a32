"""Eviction behind the windows, every step, against the request-by-request release that engines do with torch."""

from collections.abc import Callable, Iterator

import torch
from bench_reserve_extend import PAGE_SIZE, make_allocator
from harness import Case

WINDOW = 128
POOLS = ("swa", "c4_state", "c128_state")


def window_starts(committed: torch.Tensor) -> dict[str, torch.Tensor]:
    """First unit that each windowed pool keeps, of every request."""
    needed = {
        "swa": committed - WINDOW + 1,
        "c4_state": (committed // 4 - 1) * 4,
        "c128_state": committed // 128 * 128,
    }
    return {pool: first.clamp(min=0) // PAGE_SIZE * PAGE_SIZE for pool, first in needed.items()}


class RequestByRequest:
    """The same eviction with torch: the windows of the batch, then a slice for each request that frees pages."""

    def __init__(self, batch: int, max_len: int) -> None:
        self.tables = {pool: torch.full((batch, max_len), PAGE_SIZE, dtype=torch.int32) for pool in POOLS}
        self.restart(batch)

    def restart(self, batch: int) -> None:
        self.kept_from = {pool: torch.zeros(batch, dtype=torch.int64) for pool in POOLS}
        self.free_pages = {pool: torch.empty(0, dtype=torch.int32) for pool in POOLS}

    def evict(self, committed: torch.Tensor) -> None:
        for pool, starts in window_starts(committed).items():
            table, kept_from = self.tables[pool], self.kept_from[pool]
            freed = [self.free_pages[pool]]
            for i in (starts > kept_from).nonzero().flatten():
                begin, end = kept_from[i], starts[i]
                freed.append(table[i, begin:end:PAGE_SIZE] // PAGE_SIZE)
                table[i, begin:end] = 0
            self.free_pages[pool] = torch.cat(freed)
            self.kept_from[pool] = torch.maximum(kept_from, starts)


def advancing(width: int, max_len: int, step: Callable[[int], object], reset: Callable[[], None]) -> Callable[[], None]:
    """Calls step(committed) with a length that grows by `width`; starts over when the requests are at their end."""
    committed = 0

    def run() -> None:
        nonlocal committed
        if committed + width > max_len:
            reset()
            committed = 0
        committed += width
        step(committed)

    return run


def evict_case(batch: int, max_len: int, width: int) -> Case:
    """Each step commits `width` tokens of every request; the reservation was made before."""
    alloc = make_allocator(batch, max_len)
    requests, zeros = list(range(batch)), [0] * batch
    offsets = [i % width for i in range(batch)]

    def start() -> None:
        alloc.alloc_extend(requests, zeros, zeros)
        alloc.reserve_extend(requests, zeros, [max_len] * batch)

    def restart() -> None:
        alloc.free(requests)
        start()

    start()
    baseline = RequestByRequest(batch, max_len)
    lengths = torch.tensor(offsets)
    return Case(
        "evict",
        f"B={batch} up to L={max_len}, n={width}",
        advancing(
            width,
            max_len,
            lambda committed: alloc.evict(requests, [committed - offset for offset in offsets]),
            restart,
        ),
        advancing(
            width,
            max_len,
            lambda committed: baseline.evict(committed - lengths),
            lambda: baseline.restart(batch),
        ),
        "request by request in torch",
    )


def cases() -> Iterator[Case]:
    """A batch of the usual size, one request, a large batch."""
    yield evict_case(64, 8192, 4)
    yield evict_case(1, 8192, 4)
    yield evict_case(1024, 1024, 4)

"""Keeps the prefix of a prompt for requests that begin with the same tokens, and says what that costs.

    python examples/prefix_cache.py

A request starts on cached tokens only where somebody still owns the window and the compressor states behind them. A
running request evicts these as it goes on. So a row that runs nothing takes the prefix over at the end of the chunk
that completes it (it is parked), and later requests start on that row.
"""

import dsv4_npu_ops as d

PREFIX, CHUNK = 256, 128  # tokens: a system prompt, and most of a prefill step
LIVE, LATER, OTHER, PARKED = range(4)  # rows of the request tables
POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
LAYOUT = d.KVLayout(page_size=32, sliding_window=128, max_requests=4, num_pages=dict.fromkeys(POOLS, 64))


def used(alloc: d.KVAllocator) -> dict[str, int]:
    """Pages in use by pool."""
    return {pool: LAYOUT.num_pages[pool] - alloc.available_pages(pool) for pool in POOLS}


def prefill(alloc: d.KVAllocator, row: int, begin: int, end: int) -> None:
    """Chunks of a prompt; a model's forward would follow each allocation."""
    for start in range(begin, end, CHUNK):
        stop = min(start + CHUNK, end)
        alloc.alloc_extend([row], [start], [stop])
        alloc.evict([row], [stop])


def main() -> None:
    alloc = d.KVAllocator(LAYOUT, d.RequestTables(LAYOUT))

    prefill(alloc, LIVE, 0, PREFIX)  # a chunk ends where the prefix does
    parked = alloc.share_prefix([LIVE], [PARKED], [PREFIX])  # before the request goes on
    print(f"parked at {parked.starts[0]}, pages to copy: {count(parked)}")

    starts = []
    for length in range(PREFIX, 1024):  # the request goes on, one token at a time
        alloc.reserve_extend([LIVE], [length], [length + 1])
        alloc.evict([LIVE], [length + 1])
        starts.append(alloc.shareable_len(LIVE, PREFIX))
    print(f"from the running request: {sum(map(bool, starts))} of {len(starts)} lengths give a start above 0")
    print(f"from the parked row: {alloc.shareable_len(PARKED, PREFIX)}, and of 1 token less "
          f"{alloc.shareable_len(PARKED, PREFIX - 1)}")  # fmt: skip

    shared = alloc.share_prefix([PARKED], [LATER], [PREFIX])
    print(f"a later request starts at {shared.starts[0]}, pages to copy: {count(shared)}")
    prefill(alloc, LATER, PREFIX, PREFIX + 100)

    alloc.free([LIVE, LATER])
    print("the parked row keeps", used(alloc))
    alloc.free([PARKED])  # when the pages are wanted, the one that nobody has used for longest first
    print("afterwards", sum(used(alloc).values()))

    prefill(alloc, OTHER, 0, PREFIX - 6)  # what ends inside a page copies that page
    print(f"parked at {PREFIX - 6}, pages to copy: {count(alloc.share_prefix([OTHER], [PARKED], [PREFIX - 6]))}")


def count(shared: d.SharedPrefix) -> dict[str, int]:
    """Pages that the engine copies, by pool; in every tensor of the pool, before the source's next step."""
    return {pool: len(sources) for pool, (sources, _) in shared.copies.items() if len(sources)}


if __name__ == "__main__":
    main()

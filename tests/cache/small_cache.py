"""Small allocators for tests with known answers."""

import dsv4_npu_ops

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")


def make(page_size=128, pages=8, window=128, max_requests=4, max_context_len=1024, full_to_swa=False, **num_pages):
    """An allocator with `pages` pages in every pool but those named; None leaves a pool out."""
    counts = {pool: num_pages.get(pool, pages) for pool in POOLS}
    layout = dsv4_npu_ops.KVLayout(
        page_size=page_size,
        sliding_window=window,
        max_requests=max_requests,
        max_context_len=max_context_len,
        num_pages={pool: count for pool, count in counts.items() if count is not None},
    )
    tables = dsv4_npu_ops.RequestTables(layout)
    return dsv4_npu_ops.KVAllocator(layout, tables, full_to_swa=full_to_swa), tables


def state_of(alloc, tables):
    """Everything that a refused call must leave alone."""
    lengths = []
    for req in range(alloc.layout.max_requests):
        try:
            lengths.append(alloc.allocated_len(req))
        except ValueError:
            lengths.append(None)
    pages = [alloc.available_pages(pool) for pool in POOLS if alloc.layout.has_pool(pool)]
    return lengths, pages, [table.tolist() for table in tables.in_order()]

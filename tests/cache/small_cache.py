"""Small allocators for tests with known answers."""

import dsv4_npu_ops

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")


def make(
    page_size=128,
    pages=8,
    window=128,
    max_requests=4,
    max_context_len=1024,
    full_to_swa=False,
    ring_columns=None,
    **num_pages,
):
    """An allocator with `pages` pages in every pool but those named; None leaves a pool out."""
    counts = {pool: num_pages.get(pool, pages) for pool in POOLS}
    layout = dsv4_npu_ops.KVLayout(
        page_size=page_size,
        sliding_window=window,
        max_requests=max_requests,
        max_context_len=max_context_len,
        num_pages={pool: count for pool, count in counts.items() if count is not None},
        ring_columns=ring_columns or {},
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
    return lengths, pages, tables_of(tables)


def tables_of(tables):
    """What all request tables hold."""
    return [table.tolist() for table in tables.op_tables if table is not None]


def slots_of(tables, pool, req):
    """The slot of each unit that the request's row has a page for, 0 elsewhere; for tables that are no rings."""
    size = tables.page_size_of(pool)
    return [page and page * size + offset for page in tables.table(pool)[req].tolist() for offset in range(size)]


def pages_of(tables, pool, req):
    """The pages of a request by page index; for tables that are no rings."""
    return {index: page for index, page in enumerate(tables.table(pool)[req].tolist()) if page}

"""Plain-Python oracle of the table writes."""

TOKENS_PER_UNIT = (1, 1, 4, 128, 1, 1)


def write_req_tables(tables, page_sizes, requests, starts, ends, locs, state_starts):
    """Writes into `tables`, six lists of rows in table order, None for a pool that is not written.

    page_sizes: by pool, of a table of pages; None for a table of slots. locs: six flat lists of slots; state_starts:
    two lists, or None.
    """
    for pool, (rows, size, loc) in enumerate(zip(tables, page_sizes, locs, strict=True)):
        if rows is None:
            continue
        pending = list(loc)
        for i, (request, start, end) in enumerate(zip(requests, starts, ends, strict=True)):
            if start == end:
                continue
            if pool >= 4 and state_starts is not None:
                start = state_starts[pool - 4][i]
            seen = set()
            for unit in range(start // TOKENS_PER_UNIT[pool], end // TOKENS_PER_UNIT[pool]):
                slot = max(0, pending.pop(0))
                if size is None:
                    rows[request][unit] = slot
                elif unit // size not in seen:
                    seen.add(unit // size)
                    rows[request][unit // size % len(rows[request])] = slot // size

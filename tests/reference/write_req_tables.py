"""Plain-Python oracle of the table writes."""

TOKENS_PER_UNIT = (1, 1, 4, 128, 1, 1)


def write_req_tables(tables, requests, starts, ends, locs, state_starts):
    """Writes into `tables`, six lists of rows in table order; a table of empty rows is a pool that does not exist.

    locs: six flat lists of slots; state_starts: two lists, or None.
    """
    for pool, (rows, loc) in enumerate(zip(tables, locs, strict=True)):
        if not rows[0]:
            continue
        pending = list(loc)
        for i, (request, start, end) in enumerate(zip(requests, starts, ends, strict=True)):
            if start == end:
                continue
            if pool >= 4 and state_starts is not None:
                start = state_starts[pool - 4][i]
            for unit in range(start // TOKENS_PER_UNIT[pool], end // TOKENS_PER_UNIT[pool]):
                rows[request][unit] = max(0, pending.pop(0))

"""Plain-Python oracles of the two ops that carry out the allocator's decisions, on lists."""

KEEP, JOIN, TAKE = 0, 1, 2


def reserve_extend(tables, rings, segments, num_slots, page_size):
    """Writes into `tables` (six lists of rows) and returns six lists of slots. rings: six lists of page ids."""
    outputs = [[None] * count for count in num_slots]
    for pool, request, begin, end, source, ring_position, out_begin, _ in segments:
        row = tables[pool][request]
        for unit in range(begin, end):
            if source == JOIN:
                row[unit] = row[begin - 1] // page_size * page_size + unit % page_size
            elif source == TAKE:
                page = rings[pool][(ring_position + (unit - begin) // page_size) % len(rings[pool])]
                row[unit] = page * page_size + unit % page_size
            outputs[pool][out_begin + unit - begin] = row[unit]
    return outputs


def release_pages(tables, rings, segments, page_size):
    """Writes into `tables` and `rings`."""
    for pool, request, begin, end, ring_position, *_ in segments:
        row = tables[pool][request]
        if ring_position >= 0:
            for page_index, unit in enumerate(range(begin, end, page_size)):
                rings[pool][(ring_position + page_index) % len(rings[pool])] = row[unit] // page_size
        row[begin:end] = [0] * (end - begin)


def share_pages(tables, rings, segments, num_copies, page_size):
    """Writes into `tables` and returns the lists of pages to copy from and to."""
    source_pages, destination_pages = [None] * num_copies, [None] * num_copies
    for pool, request, begin, end, source, ring_position, copy, *_ in segments:
        slots = tables[pool][source][begin:end]
        if ring_position >= 0:
            page = rings[pool][ring_position]
            source_pages[copy], destination_pages[copy] = slots[0] // page_size, page
            slots = [page * page_size + unit % page_size for unit in range(begin, end)]
        tables[pool][request][begin:end] = slots
    return source_pages, destination_pages

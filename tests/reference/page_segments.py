"""Plain-Python oracles of the ops that carry out the allocator's decisions, on lists of page ids."""

KEEP, TAKE, NONE = 0, 1, 2


def reserve_extend(tables, rings, segments, num_slots, page_sizes):
    """Writes into `tables` (lists of rows by pool) and returns lists of slots by pool. rings: lists of page ids."""
    outputs = [[None] * count for count in num_slots]
    for pool, request, begin, end, source, ring_position, out_begin, *_ in segments:
        size = page_sizes[pool]
        for unit in range(begin, end):
            slot = 0
            if source != NONE:
                row = tables[pool][request]
                column = unit // size % len(row)
                if source == TAKE and unit % size == 0:
                    row[column] = rings[pool][(ring_position + (unit - begin) // size) % len(rings[pool])]
                slot = row[column] * size + unit % size
            outputs[pool][out_begin + unit - begin] = slot
    return outputs


def release_pages(tables, rings, segments):
    """Writes into `tables` and `rings`."""
    for pool, request, begin, end, ring_position, *_ in segments:
        row = tables[pool][request]
        for page_index in range(begin, end):
            if ring_position >= 0:
                rings[pool][(ring_position + page_index - begin) % len(rings[pool])] = row[page_index % len(row)]
            row[page_index % len(row)] = 0


def share_pages(tables, rings, segments, num_copies):
    """Writes into `tables` and returns the lists of pages to copy from and to."""
    source_pages, destination_pages = [None] * num_copies, [None] * num_copies
    for pool, request, begin, end, source, ring_position, copy, *_ in segments:
        for page_index in range(begin, end):
            column = page_index % len(tables[pool][request])
            page = tables[pool][source][column]
            if ring_position >= 0:
                source_pages[copy], destination_pages[copy] = page, rings[pool][ring_position]
                page = rings[pool][ring_position]
            tables[pool][request][column] = page
    return source_pages, destination_pages

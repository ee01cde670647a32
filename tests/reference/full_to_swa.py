"""Plain-Python oracle of map_full_to_swa, on lists."""


def map_full_to_swa(full, swa, mapping, segments, page_size):
    """Writes into `mapping`. full, swa: rows of page ids; segments: (request, begin, end, source, ..)."""
    for request, begin, end, source, *_ in segments:
        for unit in range(begin, end):
            page_index, offset = divmod(unit, page_size)
            full_page, swa_page = full[request][page_index], swa[request][page_index % len(swa[request])]
            mapping[full_page * page_size + offset] = swa_page * page_size + offset if source and swa_page > 0 else 0

"""Plain-Python oracle of map_full_to_swa, on lists."""


def map_full_to_swa(full, swa, mapping, segments):
    """Writes into `mapping`. full, swa: rows of the tables; segments: (request, begin, end, source, ..)."""
    for request, begin, end, source, *_ in segments:
        for unit in range(begin, end):
            mapping[full[request][unit]] = swa[request][unit] if source else 0

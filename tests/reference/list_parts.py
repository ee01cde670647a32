"""Where the parts of a work list begin, found item by item."""

PARTS, FIELDS = 64, 8


def with_parts(segments, length, first_entry=lambda row: 0):
    """The rows of a list, behind whose segments 65 pairs (segment, item) stand; nothing for no segments.

    A part begins at an equal share of the items, of which a row has ``length(row)``, or before that within its row,
    at an item whose entry counted from ``first_entry(row)`` is a multiple of 8.
    """
    if not segments:
        return []
    owners, places = [], []
    for index, row in enumerate(segments):
        owners += [index] * length(row)
        places += range(length(row))
    pairs = []
    for part in range(PARTS):
        item = min(len(owners) - 1, len(owners) * part // PARTS)
        while places[item] and (first_entry(segments[owners[item]]) + places[item]) % 8:
            item -= 1
        pairs += [owners[item], item]
    pairs += [len(segments), len(owners)]
    pairs += [0] * (-len(pairs) % FIELDS)
    return [*segments, *(pairs[i : i + FIELDS] for i in range(0, len(pairs), FIELDS))]

"""Plain-Python oracle of the verify bundle."""

from reference.step_rows import capacity, completed_groups, new_tokens, padded


def verify_bundle(tables, requests, lengths, widths, *, num_tokens=None, capacities=None):
    """tables: pool -> list of rows, or None for a missing pool; widths: one a row.

    capacities: pool -> entries of the dense outputs, "exact" for one a completed group, default the fixed capacity.
    Returns a dict of lists under the names of the fields.
    """
    rows = [new_tokens("ragged", length, width, 0) for length, width in zip(lengths, widths, strict=True)]
    total = num_tokens if num_tokens is not None else sum(widths)
    result = {}
    for pool in ("full", "swa", "c4_state", "c128_state"):
        slots = []
        for request, (start, count, entries) in zip(requests, rows, strict=True):
            if tables[pool] is not None:
                slots += [tables[pool][request][start + k] if count else 0 for k in range(entries)]
        result[f"out_{pool}_loc"] = padded(slots, total) if tables[pool] is not None else []
    for pool, ratio in (("c4", 4), ("c128", 128)):
        groups = [(r, g) for r, (s, n, _) in zip(requests, rows, strict=True) for g in completed_groups(s, n, ratio)]
        if capacities == "exact":
            size = len(groups)
        else:
            size = capacities[pool] if capacities else capacity(total, len(rows), ratio)
        exists = tables[pool] is not None
        result[f"out_{pool}_loc"] = padded([tables[pool][r][g] for r, g in groups], size) if exists else []
    return result

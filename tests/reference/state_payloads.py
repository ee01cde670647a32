"""Plain-Python oracle: which pages of a request a prefill-decode transfer moves."""

TYPES = ("swa", "c4", "c128", "indexer", "c4_state", "c128_state")


def due_units(kind, seq_len, prefix_len, window):
    """Units of the pool behind ``kind`` that the receiver will read and does not have."""
    if kind == "swa":
        # The next token sits at seq_len and sees `window` positions, its own included.
        return [p for p in range(seq_len) if p > seq_len - window and p >= prefix_len]
    if kind in ("c4", "indexer", "c128"):
        ratio = 128 if kind == "c128" else 4
        return [g for g in range(seq_len) if (g + 1) * ratio <= seq_len and (g + 1) * ratio > prefix_len]
    ratio = 4 if kind == "c4_state" else 128
    open_group = seq_len // ratio
    groups = (open_group - 1, open_group) if ratio == 4 else (open_group,)
    return [p for p in range(seq_len) if p // ratio in groups]


def state_payloads(rows, seq_len, prefix_len, window, page_sizes):
    """rows: pool -> the request's page ids by column, or None for a missing pool. Returns type -> page ids."""
    result = {}
    for kind in TYPES:
        pool = "c4" if kind == "indexer" else kind
        row = rows[pool]
        units = due_units(kind, seq_len, prefix_len, window) if row is not None else []
        indices = sorted({unit // page_sizes[pool] for unit in units})
        result[kind] = [row[index % len(row)] for index in indices]
    return result

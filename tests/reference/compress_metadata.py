"""Plain-Python oracle of the compress metadata."""

from reference.step_rows import capacity, completed_groups, kept_from, new_tokens, padded, window_from


def page_row(table_row, wanted, columns, page, filler):
    """Entry j: page of unit j * page where wanted(j * page), else the filler."""
    return [table_row[j * page] // page if wanted(j * page) else filler for j in range(columns)]


def compress_metadata(
    form, tables, requests, lengths, operands, width, *, page, window, num_tokens=None, columns=None, capacities=None
):
    """tables: pool -> list of rows, or None for a missing pool; columns: pool -> page table width.

    Returns a dict of lists under the names of the fields.
    """
    rows = [new_tokens(form, n, o, width) for n, o in zip(lengths, operands, strict=True)]
    total = num_tokens if num_tokens is not None else sum(entries for _, _, entries in rows)
    result = {
        "start_pos": [start for start, _, _ in rows],
        "seqused": [count for _, count, _ in rows],
        "cu_seqlens": [sum(entries for _, _, entries in rows[:i]) for i in range(len(rows) + 1)],
        "kv_lens": [start + count if count else 1 for start, count, _ in rows],
    }
    positions = []
    for start, count, entries in rows:
        positions += [start + k if count else 0 for k in range(entries)]
    result["positions"] = padded(positions, total)
    for pool, ratio in (("c4", 4), ("c128", 128)):
        size = capacities[pool] if capacities else capacity(total, len(rows), ratio)
        groups = [(r, g) for r, (s, n, _) in zip(requests, rows, strict=True) for g in completed_groups(s, n, ratio)]
        result[f"positions_{pool}"] = padded([g * ratio for _, g in groups], size)
        exists = tables[pool] is not None
        result[f"{pool}_loc"] = padded([tables[pool][r][g] for r, g in groups], size) if exists else []
    for pool, ratio in (("swa", 1), ("c4", 4), ("c128", 128), ("c4_state", 1), ("c128_state", 1)):
        result[f"{pool}_page_table"] = []
        for request, (start, count, _) in zip(requests, rows, strict=True):
            if tables[pool] is None:
                result[f"{pool}_page_table"].append([])
                continue
            filler = 0 if pool.endswith("state") else -1
            if count == 0:
                row = [filler] * columns[pool]
                if pool == "swa":
                    row[0] = 0
            else:
                first = 0
                if pool == "swa":
                    first = window_from(start, window, page)
                elif pool == "c4_state":
                    first = kept_from(start, 4, page)
                elif pool == "c128_state":
                    first = kept_from(start, 128, page)
                end = (start + count) // ratio
                row = page_row(tables[pool][request], lambda u, a=first, b=end: a <= u < b, columns[pool], page, filler)
            result[f"{pool}_page_table"].append(row)
    return result

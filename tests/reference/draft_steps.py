"""Plain-Python oracle of the draft steps: one draft at a time, straight from docs/spec.md."""


def draft_steps(lengths, slot_of, cos, sin, topk, num_steps, context, num_entries, dummy=0):
    """slot_of(request, k, step): slot of a live draft, None for nobody's. cos, sin: lists of rows.

    Returns slots, positions, kv_lens, cos and sin by output name, each a list of steps of lists of entries.
    """
    out = {"slots": [], "positions": [], "kv_lens": [], "cos": [], "sin": []}
    for step in range(num_steps):
        entries = []
        for request, length in enumerate(lengths):
            for k in range(topk):
                position = length + step
                if length == 0 or position >= context:
                    entries.append((dummy, 0, 1))
                else:
                    slot = slot_of(request, k, step)
                    entries.append((dummy if slot is None else slot, position, position + 1))
        entries += [(dummy, 0, 1)] * (num_entries - len(entries))
        out["slots"].append([slot for slot, _, _ in entries])
        out["positions"].append([position for _, position, _ in entries])
        out["kv_lens"].append([length for _, _, length in entries])
        out["cos"].append([list(cos[position]) for _, position, _ in entries])
        out["sin"].append([list(sin[position]) for _, position, _ in entries])
    return out


def drafts_apart(table, last_positions, seq_lens, block_size, num_steps, context, num_entries, dummy):
    """Slots, positions and keys of each step, where they have buffers of their own. table: a list of rows of blocks.

    Returns a list of steps of lists of (slot, position, keys).
    """
    steps = []
    for step in range(num_steps):
        entries = []
        for row, last, length in zip(table, last_positions, seq_lens, strict=False):
            position = last + 1 + step
            keys = 0 if last < 0 else max(0, min(length, context)) + 1 + step
            if keys > context:
                keys -= context
            if last < 0 or position >= context:
                entries.append((dummy, 0, keys))
            else:
                block = row[position // block_size]
                entries.append((block * block_size + position % block_size if block > 0 else dummy, position, keys))
        steps.append(entries + [(dummy, 0, 0)] * (num_entries - len(entries)))
    return steps

"""Plain-Python oracle of the draft steps: one draft at a time, straight from docs/spec.md."""


def draft_steps(lengths, slot_of, cos, sin, topk, num_steps, context, num_entries):
    """slot_of(request, k, step): slot of a live draft, negative where it has none. cos, sin: lists of rows.

    Returns slots, positions, kv_lens, cos and sin by output name, each a list of steps of lists of entries.
    """
    out = {"slots": [], "positions": [], "kv_lens": [], "cos": [], "sin": []}
    for step in range(num_steps):
        entries = []
        for request, length in enumerate(lengths):
            for k in range(topk):
                position = length + step
                if length == 0 or position >= context:
                    entries.append((0, 0, 1))
                else:
                    slot = slot_of(request, k, step)
                    entries.append((slot if slot > 0 else 0, position, position + 1))
        entries += [(0, 0, 1)] * (num_entries - len(entries))
        out["slots"].append([slot for slot, _, _ in entries])
        out["positions"].append([position for _, position, _ in entries])
        out["kv_lens"].append([length for _, _, length in entries])
        out["cos"].append([list(cos[position]) for _, position, _ in entries])
        out["sin"].append([list(sin[position]) for _, position, _ in entries])
    return out

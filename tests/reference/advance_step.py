"""Plain-Python oracle of what follows from a verify's accepted lengths."""


def advance_step(full, swa, requests, lengths, accepted, tokens, row_starts, context, hidden=None, width_of_hidden=0):
    """full, swa: lists of table rows, or None for a missing pool; row_starts: where each row's tokens begin.

    hidden: one list a token. Returns a dict of lists under the names of the fields.
    """
    names = ("seq_lens", "extend_lens", "token_ids", "positions", "out_full_loc", "out_swa_loc", "sampled_index")
    result = {name: [] for name in names}
    result["hidden_states"] = None if hidden is None else []
    for request, length, a, start in zip(requests, lengths, accepted, row_starts, strict=True):
        live = length > 0 and a > 0
        after = length + a if live else length
        drafts = live and after < context
        newest = start + a - 1
        result["seq_lens"].append(after)
        result["extend_lens"].append(a if live else 0)
        result["token_ids"].append(tokens[newest] if live else 0)
        result["positions"].append(after if drafts else 0)
        result["sampled_index"].append(newest if live else 0)
        for name, table in (("out_full_loc", full), ("out_swa_loc", swa)):
            if table is not None:
                result[name].append(table[request][after] if drafts else 0)
        if hidden is not None:
            result["hidden_states"].append(hidden[newest] if live else [0.0] * width_of_hidden)
    return result

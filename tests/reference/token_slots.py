"""Plain-Python oracle of token_slots: it walks the tokens one by one."""


def token_slots(cu_seqlens, seq_lens, table, page_size, ratio, first_pages, lowest_page, num_tokens, num_reqs):
    """Slot of each token in one table, a list of rows; first_pages: by request, or None."""
    slots = [-1] * num_tokens
    for request in range(num_reqs):
        tokens = range(cu_seqlens[request], cu_seqlens[request + 1])
        for token in tokens:
            position = seq_lens[request] - (tokens.stop - token)
            if seq_lens[request] > 0 and position % ratio == ratio - 1:
                first_page = first_pages[request] if first_pages else 0
                slots[token] = _slot(table[request], position // ratio, page_size, first_page, lowest_page)
    return slots


def _slot(row, unit, page_size, first_page, lowest_page):
    column = unit // page_size - first_page
    if 0 <= column < len(row) and row[column] >= lowest_page:
        return row[column] * page_size + unit % page_size
    return -1

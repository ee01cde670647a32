"""Plain-Python oracle of extend_from_lists, token by token, on lists."""


def extend_from_lists(rows, lists, mapping, table, owners, page_size, c128_page_size, swa_tail=None):
    """Writes into `mapping`, `table` and `owners`, and takes pages out of `lists`.

    rows: (request, prefix, seq, last_loc); lists: free pages of full, swa and c128. Returns the slots of full, swa, c4
    and c128, and the replaced entries of the table.
    """
    full_pages, swa_pages, c128_pages = lists
    full_loc, swa_loc, c4_loc, c128_loc, replaced = [], [], [], [], []
    for request, prefix, seq, last_loc in rows:
        if prefix == seq:
            continue
        full_slot, swa_slot = last_loc, mapping[last_loc] if prefix % page_size else 0
        for token in range(prefix, seq):
            starts_page = token % page_size == 0
            full_slot = full_pages.pop(0) * page_size if starts_page else full_slot + 1
            if swa_tail is not None and token < seq - swa_tail:
                swa_slot = 0
            else:
                swa_slot = swa_pages.pop(0) * page_size if starts_page else swa_slot + 1
            mapping[full_slot] = swa_slot
            full_loc.append(full_slot)
            swa_loc.append(swa_slot)
            if token % 4 == 3:
                c4_loc.append(full_slot // 4)
            if token % 128 == 127:
                column, offset = divmod(token // 128, c128_page_size)
                if offset == 0:
                    replaced.append(table[request][column])
                    table[request][column] = c128_pages.pop(0)
                    owners[table[request][column]] = 1
                c128_loc.append(table[request][column] * c128_page_size + offset)
    return full_loc, swa_loc, c4_loc, c128_loc, replaced

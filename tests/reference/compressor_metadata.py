"""Plain-Python oracle of compressor_metadata: it walks the tokens one by one."""


def compressor_metadata(
    cos, sin, cu_seqlens, start_pos, block_table, block_size, ratio, num_rows, num_reqs, table_rows=None
):
    """Tables as lists of rows, cos and sin None for groups of any position; table_rows: of the block table, by request.

    Returns (cos rows, sin rows, (block, offset) pairs, positions), num_rows of each; no rows of missing tables.
    """
    table_rows = range(num_reqs) if table_rows is None else table_rows
    rows = []
    for request in range(num_reqs):
        if start_pos[request] < 0:
            continue
        for token in range(cu_seqlens[request + 1] - cu_seqlens[request]):
            position = start_pos[request] + token
            if (position + 1) % ratio == 0:
                rows.append(
                    _group_row(cos, sin, block_table[table_rows[request]], block_size, position + 1 - ratio, ratio)
                )
    assert len(rows) <= num_rows
    dim = len(cos[0]) if cos else 0
    rows += [None] * (num_rows - len(rows))
    rows = [row if row is not None else ([1.0] * dim, [0.0] * dim, (-1, block_size - 1), 0) for row in rows]
    return tuple(list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])


def _group_row(cos, sin, blocks, block_size, first_position, ratio):
    """The row of the group that starts at first_position, or None for a dummy."""
    group = first_position // ratio
    if (
        (cos is not None and first_position >= len(cos))
        or group // block_size >= len(blocks)
        or blocks[group // block_size] < 0
    ):
        return None
    place = blocks[group // block_size], group % block_size
    return (
        ([], [], place, first_position)
        if cos is None
        else (cos[first_position], sin[first_position], place, first_position)
    )


def flat(pairs, block_size):
    """Flat slots of (block, offset) pairs; a dummy is -1."""
    return [-1 if block < 0 else block * block_size + offset for block, offset in pairs]

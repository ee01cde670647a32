"""Plain-Python oracle of a step over any tables: one unit, one entry at a time, straight from docs/spec.md, a step."""

from dataclasses import dataclass, field

UNIT_TOKENS = dict(full=1, swa=1, c4=4, c128=128, c4_state=1, c128_state=1)
POOLS = tuple(UNIT_TOKENS)
RATIOS = dict(c4=4, c128=128)
LEAD = dict(c4_state=8, c128_state=128)


@dataclass
class Address:
    """kind: pages, slots, divided, mapped, page_ring, request_ring or bank; table: rows, or the mapping's entries."""

    kind: str
    table: list = field(default_factory=list)
    page: int = 1
    ring: int = 1
    base: str = ""


def slot_of(pools, pool, request, unit):
    """Slot of a unit, or None."""
    address = pools[pool]
    if address.kind == "request_ring":
        return request * address.ring + unit % address.ring
    if address.kind == "bank":
        return request
    if address.kind == "pages":
        row = address.table[request]
        page = row[unit // address.page % len(row)]
        return page * address.page + unit % address.page if page > 0 else None
    if address.kind == "slots":
        slot = address.table[request][unit]
        return slot if slot > 0 else None
    if address.kind == "divided":
        tokens = UNIT_TOKENS[pool]
        base = slot_of(pools, address.base, request, unit * tokens + tokens - 1)
        return base // tokens if base is not None and base >= tokens else None
    base = slot_of(pools, address.base, request, unit)
    if base is None:
        return None
    if address.kind == "mapped":
        return address.table[base] if address.table[base] > 0 else None
    page = pools[address.base].page
    return base // page * address.ring + base % address.ring


def first_in_ring(pools, pool, length):
    """First token whose page has not been overwritten in a ring of columns at `length` tokens; 0 elsewhere."""
    address = pools[pool]
    while address.kind in ("page_ring", "mapped"):
        address = pools[address.base]
    if address.kind != "pages":
        return 0
    pages = -(-length // address.page)
    return max(0, pages - len(address.table[0])) * address.page


def page_size(pools, pool):
    address = pools[pool]
    return pools[address.base].page // UNIT_TOKENS[pool] if address.kind == "divided" else address.page


def page_of(pools, pool, request, page, dummy):
    """What a page table says of a page: what stands in a table, whatever it is; by a rule the page, or the dummy."""
    address = pools[pool]
    unit = page * page_size(pools, pool)
    if address.kind == "pages":
        return address.table[request][page % len(address.table[request])]
    if address.kind == "slots":
        return address.table[request][unit] // address.page
    if address.kind == "divided" and pools[address.base].kind == "pages":
        return page_of(pools, address.base, request, page, dummy)
    if address.kind == "divided":
        tokens = UNIT_TOKENS[pool]
        return pools[address.base].table[request][unit * tokens + tokens - 1] // pools[address.base].page
    slot = slot_of(pools, pool, request, unit)
    return dummy if slot is None else slot // address.page


def row_of(form, length, operand, width=0):
    """(start, new tokens, entries of the token tensor) of a row; start and new tokens are 0 for padding.

    Forms: prefill (operand: prefix), final and verify (operand: tokens of the row, or None for ``width`` of every row).
    """
    if form == "prefill":
        entries = length - operand
    else:
        entries = width if operand is None else operand
    if length == 0 or entries == 0:
        return 0, 0, entries
    return (length if form == "verify" else length - entries), entries, entries


def completed_groups(start, count, ratio):
    """Groups whose last token is one of the positions start .. start + count - 1."""
    return [p // ratio for p in range(start, start + count) if p % ratio == ratio - 1]


def capacity(num_tokens, num_rows, ratio):
    return max(1, min(num_tokens, num_tokens // ratio + num_rows))


def first_kept(pool, start, window, page):
    """First unit whose page a row still needs, at the start of its page."""
    first = 0
    if pool == "swa":
        first = max(0, start - window + 1)
    elif pool == "c4_state":
        first = max(0, start // 4 - 1) * 4
    elif pool == "c128_state":
        first = start // 128 * 128
    return first - first % page


def live_pages(pools, pool, start, count, window):
    """Pages [first, end) of a row that a page table names."""
    page = page_size(pools, pool)
    units = (start + count) // UNIT_TOKENS[pool]
    return first_kept(pool, start, window, page) // page, -(-units // page)


def padded(values, size, filler=0):
    assert len(values) <= size
    return values + [filler] * (size - len(values))


def step_oracle(
    pools,
    requests,
    rows,
    sizes,
    *,
    window,
    cos=None,
    sin=None,
    token_rope=None,
    dummy_slots=None,
    dummy_pages=None,
    block=1,
    closes=False,
):
    """Every output that ``sizes`` names, as lists.

    rows: (start, new, entries), as ``row_of`` gives them. sizes: by field its entries, or its columns, or for
    ``window_locs`` (rows, columns). token_rope: by base, "main" or "compress", the rows of both tables.
    """
    slot_dummy = {pool: 0 for pool in POOLS} | (dummy_slots or {})
    page_dummy = {pool: 0 if pool.endswith("state") else -1 for pool in POOLS} | (dummy_pages or {})
    offsets = [sum(entries for _, _, entries in rows[:i]) for i in range(len(rows) + 1)]
    live = [(q, start, count) for q, (start, count, _) in zip(requests, rows, strict=True) if count]
    groups = {r: [(q, g) for q, s, n in live for g in completed_groups(s, n, r)] for r in (4, 128)}

    def slot(pool, request, unit):
        found = slot_of(pools, pool, request, unit)
        return slot_dummy[pool] if found is None else found

    def tokens(value, filler, size):
        """value(request, position) of every token of the token tensor."""
        values = []
        for request, (start, count, entries) in zip(requests, rows, strict=True):
            values += [value(request, start + k) if count else filler for k in range(entries)]
        return padded(values, size, filler)

    def page_row(pool, request, start, count, columns):
        if count == 0:
            row = [page_dummy[pool]] * columns
            return [0, *row[1:]] if pool == "swa" else row
        first, end = live_pages(pools, pool, start, count, window)
        return [
            page_of(pools, pool, request, j, page_dummy[pool]) if first <= j < end else page_dummy[pool]
            for j in range(columns)
        ]

    def state_row(pool, request, start, count, columns):
        positions = [start - LEAD[pool] + j for j in range(columns)]
        first = first_in_ring(pools, pool, start + count)
        return [slot(pool, request, p) if count and first <= p < start + count else slot_dummy[pool] for p in positions]

    def window_rows(size):
        num_rows, columns = size
        result = []
        for request, (start, count, _) in zip(requests, rows, strict=True):
            first = max(first_in_ring(pools, "swa", start + count), start - window)
            found = [slot_of(pools, "swa", request, p) for p in range(first, start + count)]
            slots = [-1 if s is None else s for s in found] if count else [0]
            result += [padded(slots, columns, -1)] * block
        return result + [padded([0], columns, -1)] * (num_rows - len(result))

    def output(name, size):
        pool = name.removeprefix("out_").removesuffix("_loc").removesuffix("_page_table").removesuffix("_locs")
        if name in ("out_c4_loc", "out_c128_loc"):
            return padded([slot(pool, q, g) for q, g in groups[RATIOS[pool]]], size, slot_dummy[pool])
        if name.startswith("out_"):
            return tokens(lambda request, position: slot(pool, request, position), slot_dummy[pool], size)
        if name.endswith("page_table"):
            return [page_row(pool, q, s, n, size) for q, (s, n, _) in zip(requests, rows, strict=True)]
        if name in ("c4_state_locs", "c128_state_locs"):
            return [state_row(pool, q, s, n, size) for q, (s, n, _) in zip(requests, rows, strict=True)]
        if name == "window_locs":
            return window_rows(size)
        if name == "positions":
            return tokens(lambda request, position: position, 0, size)
        if name in ("positions_c4", "positions_c128"):
            ratio = RATIOS[name.removeprefix("positions_")]
            return padded([g * ratio for _, g in groups[ratio]], size)
        if name.endswith(("_cos", "_sin")):
            pool, table = name.split("_")
            if pool in (token_rope or {}):
                rope_rows = token_rope[pool][("cos", "sin").index(table)]
                return [rope_rows[p] for p in tokens(lambda request, position: position, 0, size)]
            positions = padded([g * RATIOS[pool] for _, g in groups[RATIOS[pool]]], size)
            return [(cos if table == "cos" else sin)[p] for p in positions]
        return {
            "start_pos": [start for start, _, _ in rows],
            "seqused": [count for _, count, _ in rows],
            "kv_lens": [start + count if count else 1 for start, count, _ in rows],
            "cu_seqlens": [*offsets[:-1], size if closes else offsets[-1]],
            "num_groups": [len(groups[4]), len(groups[128])],
        }[name]

    return {name: output(name, size) for name, size in sizes.items()}

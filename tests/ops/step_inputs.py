"""Random steps over the package's own tables, for the tests of the ops that describe one: layouts, filled tables,
rows."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from reference.step import POOLS, UNIT_TOKENS, Address, page_size, row_of, slot_of

from dsv4_npu_ops import KVLayout, PageTable, RequestTables

FORMS = ("prefill", "decode", "verify", "ragged")
INTEGERS = (torch.int32, torch.int64)


@dataclass
class Step:
    """Rows of one step as plain lists, with the tables that they refer to."""

    form: str
    layout: KVLayout
    tables: RequestTables
    pools: dict[str, Address]
    requests: list[int]
    lengths: list[int]
    operands: list[int]
    width: int
    dtypes: tuple[torch.dtype, torch.dtype, torch.dtype]

    def tensors(self, device):
        """req_pool_indices, seq_lens, operands."""
        values = (self.requests, self.lengths, self.operands)
        return [torch.tensor(v, dtype=d, device=device) for v, d in zip(values, self.dtypes, strict=True)]

    def num_draft_tokens(self, device):
        return self.width if self.form == "verify" else self.tensors(device)[2]

    def rows(self):
        """(start, new, entries) of every row."""
        if self.form in ("prefill", "ragged"):
            form = "prefill" if self.form == "prefill" else "verify"
            return [row_of(form, n, o) for n, o in zip(self.lengths, self.operands, strict=True)]
        form, width = ("final", 1) if self.form == "decode" else ("verify", self.width)
        return [row_of(form, length, None, width) for length in self.lengths]

    def total(self):
        return sum(entries for _, _, entries in self.rows())

    def longest(self):
        """Greatest final length."""
        return max([0, *(start + new for start, new, _ in self.rows())])

    def page_widths(self, length):
        """What ``length // u`` units need in pages, at least one."""
        return {pool: max(1, -(-(length // UNIT_TOKENS[pool]) // page_size(self.pools, pool))) for pool in self.pools}


def filled_tables(layout, seed, device, extra_columns=0):
    """Tables of random pages, a third of them holes; extra_columns makes the rows strided slices of a wider tensor."""
    generator = torch.Generator().manual_seed(seed)
    addresses = {}
    for pool in POOLS:
        if not layout.has_pool(pool):
            continue
        page = layout.page_size_of(pool)
        shape = (layout.max_requests, layout.num_columns(pool) + extra_columns)
        pages = torch.randint(1, (1 << 20) // page, shape, generator=generator, dtype=torch.int32)
        pages[torch.rand(shape, generator=generator) < 0.33] = 0
        addresses[pool] = PageTable(pages.to(device)[:, extra_columns:], page)
    tables = RequestTables.of(addresses, sliding_window=layout.sliding_window, max_context_len=layout.max_context_len)
    tables.layout = layout
    return tables


def plain_pools(tables):
    """The addresses of page tables as the oracle takes them."""
    return {
        pool: Address("pages", address.table.tolist(), page=address.page_size) for pool, address in tables.pools.items()
    }


def as_lists(tables):
    """By pool the slot of every unit of the longest request, 0 where there is none; None for a missing pool."""
    plain = plain_pools(tables)

    def slots(pool, request):
        units = tables.max_context_len // UNIT_TOKENS[pool]
        return [slot_of(plain, pool, request, unit) or 0 for unit in range(units)]

    return {
        pool: [slots(pool, request) for request in range(len(plain[pool].table))] if pool in plain else None
        for pool in POOLS
    }


@st.composite
def steps(draw, device, forms=FORMS):
    form = draw(st.sampled_from(forms))
    context = draw(st.one_of(st.integers(1, 20), st.integers(120, 700)))
    existing = draw(st.one_of(st.just(list(POOLS)), st.lists(st.sampled_from(POOLS), unique=True)))
    sizes = st.sampled_from([1, 2, 4, 16, 32, 64, 128, 256])
    layout = KVLayout(
        page_size=draw(st.one_of(sizes, st.fixed_dictionaries({pool: sizes for pool in existing}))),
        sliding_window=draw(st.integers(1, 300)),
        max_requests=draw(st.integers(1, 5)),
        max_context_len=context,
        num_pages={pool: 4 for pool in existing},
        device=device,
    )
    tables = filled_tables(layout, draw(st.integers(0, 1 << 30)), device, draw(st.sampled_from([0, 0, 3])))
    width = draw(st.integers(0, min(9, context))) if form == "verify" else 0
    requests, lengths, operands = [], [], []
    for _ in range(draw(st.integers(0, 7))):
        length, operand = draw_row(draw, form, context, width)
        padding = length == 0 or (form == "prefill" and length == operand) or (form == "ragged" and operand == 0)
        padding = padding or (form == "verify" and width == 0)
        # A padding row's index is never looked at, so that it may be anything.
        requests.append(draw(st.integers(-9, 999) if padding else st.integers(0, layout.max_requests - 1)))
        lengths.append(length)
        operands.append(operand)
    dtypes = tuple(draw(st.sampled_from(INTEGERS)) for _ in range(3))
    return Step(form, layout, tables, plain_pools(tables), requests, lengths, operands, width, dtypes)


def draw_row(draw, form, context, width):
    if form == "prefill":
        length = draw(st.integers(0, context))
        return length, draw(st.one_of(st.integers(0, length), st.just(length)))
    if form == "decode":
        return draw(st.integers(0, context)), 0
    if form == "verify":
        return draw(st.one_of(st.just(0), st.integers(0, context - width))), 0
    operand = draw(st.integers(0, min(9, context)))
    return draw(st.one_of(st.just(0), st.integers(0, context - operand))), operand

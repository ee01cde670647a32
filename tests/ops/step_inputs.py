"""Random steps for the tests of the ops that describe one: layouts, filled tables, rows."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from dsv4_npu_ops import KVLayout, RequestTables

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
FORMS = ("prefill", "decode", "verify", "ragged")
INTEGERS = (torch.int32, torch.int64)


@dataclass
class Step:
    """Rows of one step as plain lists, with the tables that they refer to."""

    form: str
    layout: KVLayout
    tables: RequestTables
    rows: dict[str, list[list[int]] | None]
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

    def finals(self):
        """Final lengths of the rows that bring tokens."""
        ends = []
        for length, operand in zip(self.lengths, self.operands, strict=True):
            if self.form in ("prefill", "decode"):
                ends.append(length)
            elif length:
                ends.append(length + (self.width if self.form == "verify" else operand))
        return ends


def filled_tables(layout, seed, device, extra_columns=0):
    """Tables of random slots, a third of them holes; extra_columns makes the rows strided slices of a wider tensor."""
    generator = torch.Generator().manual_seed(seed)
    tables = RequestTables(layout)
    for pool in POOLS:
        columns = getattr(tables, pool).shape[1]
        if columns == 0:
            continue
        shape = (layout.max_requests, columns + extra_columns)
        slots = torch.randint(1, 1 << 20, shape, generator=generator, dtype=torch.int32)
        slots[torch.rand(shape, generator=generator) < 0.33] = 0
        setattr(tables, pool, slots.to(device)[:, extra_columns:])
    return tables


def as_lists(tables):
    return {pool: getattr(tables, pool).tolist() if getattr(tables, pool).shape[1] else None for pool in POOLS}


@st.composite
def steps(draw, device, forms=FORMS):
    form = draw(st.sampled_from(forms))
    context = draw(st.one_of(st.integers(1, 20), st.integers(120, 700)))
    existing = draw(st.one_of(st.just(list(POOLS)), st.lists(st.sampled_from(POOLS), unique=True)))
    layout = KVLayout(
        page_size=draw(st.sampled_from([1, 2, 4, 16, 32, 64, 128, 256])),
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
    return Step(form, layout, tables, as_lists(tables), requests, lengths, operands, width, dtypes)


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

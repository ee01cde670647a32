"""Random steps over every kind of address, and buffers for any subset of what they can be asked for."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from reference.step import LEAD, RATIOS, UNIT_TOKENS, Address, completed_groups, live_pages, row_of

from dsv4_npu_ops import (
    DividedSlots,
    MappedSlots,
    PageRing,
    PageTable,
    RequestBank,
    RequestRing,
    RequestTables,
    SlotTable,
    Step,
    StepRows,
)

INTEGERS = (torch.int32, torch.int64)
FORMS = ("prefill", "decode", "final", "final_ragged", "mixed", "verify", "verify_ragged")
POISON = -77
TOKEN_POOLS = ("full", "swa", "c4_state", "c128_state")
WINDOWED = ("swa", "c4_state", "c128_state")
BASES = ("main", "compress")
PAGE_SIZES = (1, 2, 4, 16, 32, 64, 128)


@dataclass
class Batch:
    """Rows as plain lists: (start, new, entries), the requests' rows, and what the form takes."""

    form: str
    rows: list[tuple[int, int, int]]
    requests: list[int]
    lengths: list[int]
    operands: list[int | None]
    width: int

    def step_rows(self, device, dtypes):
        def tensor(values, dtype):
            return torch.tensor(values, dtype=dtype, device=device)

        lengths = tensor(self.lengths, dtypes[0])
        if self.form == "prefill":
            return StepRows.prefill(tensor(self.operands, dtypes[1]), lengths)
        if self.form == "mixed":
            ends = [sum(self.operands[:i]) for i in range(len(self.operands) + 1)]
            return StepRows.mixed(tensor(ends, dtypes[1]), lengths)
        widths = tensor(self.operands, dtypes[1]) if self.form.endswith("ragged") else self.width
        if self.form == "decode":
            return StepRows.final(lengths)
        return (StepRows.verify if self.form.startswith("verify") else StepRows.final)(lengths, widths)


def draw_row(draw, form, context, width):
    """(length, operand) of a row that fits the context; length 0 or no tokens make it padding."""
    if form == "prefill":
        length = draw(st.integers(0, context))
        return length, draw(st.one_of(st.integers(0, length), st.just(length)))
    ragged = form in ("mixed", "final_ragged", "verify_ragged")
    operand = draw(st.integers(0, min(9, context))) if ragged else None
    tokens = operand if ragged else width
    if form.startswith("verify"):
        return draw(st.one_of(st.just(0), st.integers(0, context - tokens))), operand
    # A first chunk brings all there is.
    return draw(st.one_of(st.just(0), st.just(tokens), st.integers(tokens, context))), operand


@st.composite
def batches(draw, form, context, num_requests, indexed):
    width = 1 if form == "decode" else draw(st.integers(0, min(9, context))) if form in ("final", "verify") else 0
    count = draw(st.integers(0, 7 if indexed else min(7, num_requests)))
    pairs = [draw_row(draw, form, context, width) for _ in range(count)]
    kind = "prefill" if form == "prefill" else "verify" if form.startswith("verify") else "final"
    rows = [row_of(kind, length, operand, width) for length, operand in pairs]
    # A padding row's index is never looked at, so that it may be anything.
    requests = [draw(st.integers(0, num_requests - 1) if new else st.integers(-9, 999)) for _, new, _ in rows]
    if not indexed:
        requests = list(range(count))
    return Batch(form, rows, requests, [pair[0] for pair in pairs], [pair[1] for pair in pairs], width)


class Tables:
    """Addresses of pools for the package and, as lists, for the oracle."""

    def __init__(self, seed, device, num_requests, context, window, batch):
        self._generator = torch.Generator().manual_seed(seed)
        self._device, self._requests, self._context, self._window = device, num_requests, context, window
        self._batch = batch
        self.given: dict[str, object] = {}
        self.plain: dict[str, Address] = {}

    def _random(self, shape, limit):
        """Entries from 1 to limit; a third are holes, 0 or less."""
        values = torch.randint(1, limit + 1, shape, generator=self._generator, dtype=torch.int64)
        holes = torch.rand(shape, generator=self._generator)
        values[holes < 0.33] = 0
        values[holes < 0.08] = -1
        return values

    def _tensor(self, values, dtype, spare):
        """Strided rows: a slice of a wider tensor."""
        wide = torch.full((values.shape[0], values.shape[1] + spare), POISON, dtype=dtype)
        wide[:, spare:] = values
        return wide.to(self._device)[:, spare:]

    def add_pages(self, draw, pool, page):
        """A table of int32 pages with room for all units of a request."""
        columns = -(-max(1, self._context // UNIT_TOKENS[pool]) // page) + draw(st.integers(0, 2))
        values = self._random((self._requests, columns), 1 << 18)
        self.plain[pool] = Address("pages", values.tolist(), page=page)
        self.given[pool] = PageTable(self._tensor(values, torch.int32, draw(st.sampled_from((0, 0, 3)))), page)

    def add(self, draw, pool, small):
        """small: slots must lie within a mapping."""
        tokens = UNIT_TOKENS[pool]
        bases = [p for p in ("full", "swa") if p != pool and p in self.given]
        tables = [p for p in bases if self.plain[p].kind in ("pages", "slots")]
        kinds = ["pages", "slots"] * 2
        if tokens == 1:
            kinds += ["request_ring", "bank"] + ["mapped"] * bool(tables)
            kinds += ["page_ring"] * any(self.plain[p].kind in ("pages", "slots", "mapped") for p in bases)
        elif any(self.plain[p].page >= tokens for p in tables if p == "full"):
            kinds += ["divided"] * 3
        kind = draw(st.sampled_from(kinds))
        page, dtype, ring = (
            draw(st.sampled_from(PAGE_SIZES)),
            draw(st.sampled_from(INTEGERS)),
            draw(st.sampled_from((1, 4, 8, 16))),
        )
        spare = draw(st.sampled_from((0, 0, 3)))
        units = max(1, self._context // tokens)
        plain = Address(kind, page=page if kind in ("pages", "slots", "mapped") else 1, ring=ring)
        if kind == "pages":
            columns = -(-units // page)
            if pool in WINDOWED and draw(st.booleans()):
                columns = self._ring_columns(pool, plain) + draw(st.integers(0, 2))
            values = self._random((self._requests, columns), 300 // page + 1 if small else 1 << 18)
            plain.table = values.tolist()
            self.given[pool] = PageTable(self._tensor(values, dtype, spare), page)
        elif kind == "slots":
            values = self._random((self._requests, units), 300 if small else 1 << 20)
            plain.table = values.tolist()
            self.given[pool] = SlotTable(self._tensor(values, dtype, spare), page)
        elif kind == "mapped":
            plain.base = draw(st.sampled_from(tables))
            values = self._random((1024,), 1 << 18)
            plain.table = values.tolist()
            self.given[pool] = MappedSlots(values.to(dtype).to(self._device), page, plain.base)
        elif kind == "page_ring":
            plain.base = draw(st.sampled_from([p for p in bases if self.plain[p].kind in ("pages", "slots", "mapped")]))
            self.given[pool] = PageRing(ring, plain.base)
        elif kind == "divided":
            plain.base = "full"
            self.given[pool] = DividedSlots()
        else:
            self.given[pool] = RequestRing(ring) if kind == "request_ring" else RequestBank()
        self.plain[pool] = plain

    def _ring_columns(self, pool, plain):
        """As few columns as the batch's live pages need."""
        spans = [live_pages({pool: plain}, pool, s, n, self._window) for s, n, _ in self._batch.rows if n]
        return max([1, *(end - first for first, end in spans)])

    def request_tables(self):
        return RequestTables.of(self.given, sliding_window=self._window, max_context_len=self._context)


@dataclass
class AnyStep:
    """A step over any tables."""

    batch: Batch
    tables: Tables
    window: int
    indexed: bool
    dtypes: tuple[torch.dtype, torch.dtype, torch.dtype]

    def arguments(self, device):
        """tables, rows, req_pool_indices."""
        requests = torch.tensor(self.batch.requests, dtype=self.dtypes[2], device=device) if self.indexed else None
        return self.tables.request_tables(), self.batch.step_rows(device, self.dtypes), requests


@st.composite
def any_steps(draw, device, form, paged=False):
    """paged: every pool has a table of pages, with pages of one size where their units are tokens."""
    context = draw(st.one_of(st.integers(1, 20), st.integers(120, 700)))
    num_requests, indexed = draw(st.integers(1, 5)), draw(st.booleans())
    batch = draw(batches(form, context, num_requests, indexed))
    window = draw(st.integers(1, 300))
    tables = Tables(draw(st.integers(0, 1 << 30)), device, num_requests, context, window, batch)
    page = draw(st.sampled_from(PAGE_SIZES))
    for pool in ("full", "swa", "c4", "c128", "c4_state", "c128_state"):
        if not draw(st.sampled_from((True, True, True, False))):
            continue
        if paged:
            tables.add_pages(draw, pool, page if pool in TOKEN_POOLS else draw(st.sampled_from(PAGE_SIZES)))
        else:
            tables.add(draw, pool, small=pool in ("full", "swa"))
    dtypes = tuple(draw(st.sampled_from(INTEGERS)) for _ in range(3))
    return AnyStep(batch, tables, window, indexed, dtypes)


@dataclass
class Buffers:
    """Poisoned outputs: the step's fields, their sizes for the oracle, and what must keep its poison."""

    out: Step
    sizes: dict[str, object]
    guards: list[torch.Tensor]
    rope: tuple[torch.Tensor, torch.Tensor]
    token_rope: dict[str, tuple[torch.Tensor, torch.Tensor]]
    block: int


def needs(step):
    """By field the least entries or columns of the outputs that the tables can give."""
    rows, pools = step.batch.rows, step.tables.plain
    total = sum(entries for _, _, entries in rows)
    least: dict[str, object] = {"positions": total, "start_pos": 0, "seqused": 0, "kv_lens": 0, "num_groups": 2}
    least["cu_seqlens"] = 0
    least |= {f"{base}_{table}": total for base in BASES for table in ("cos", "sin")}
    for name, ratio in RATIOS.items():
        groups = sum(len(completed_groups(start, new, ratio)) for start, new, _ in rows)
        least |= {f"positions_{name}": groups, f"{name}_cos": groups, f"{name}_sin": groups}
        if name in pools:
            least[f"out_{name}_loc"] = groups
    for pool, address in pools.items():
        if pool in TOKEN_POOLS:
            least[f"out_{pool}_loc"] = total
        if address.kind in ("pages", "slots", "mapped", "divided"):
            ends = [live_pages(pools, pool, start, new, step.window)[1] for start, new, _ in rows if new]
            least[f"{pool}_page_table"] = max([1, *ends])
        if pool in LEAD:
            least[f"{pool}_locs"] = LEAD[pool] + max([0, *(new for _, new, _ in rows)])
    if "swa" in pools:
        counts = [min(start, step.window) + new for start, new, _ in rows]
        least["window_locs"] = max([1, *counts])
    return least


@st.composite
def buffers(draw, step, device, fields=None, paged=False):
    """paged: neither state tables, windows, pairs nor more entries than the rows have tokens."""
    least, rows = needs(step), len(step.batch.rows)
    if paged:
        least = {name: size for name, size in least.items() if not name.endswith(("_state_locs", "window_locs"))}
    names = list(fields or draw(st.lists(st.sampled_from(sorted(least)), unique=True)))
    tokens = sum(entries for _, _, entries in step.batch.rows) + (0 if paged else draw(st.integers(0, 9)))
    spare_groups = {ratio: draw(st.integers(0, 4)) for ratio in RATIOS}
    dim, block = draw(st.sampled_from((0, 1, 8))), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    rope = [torch.randn(max(1, step.tables._context), dim, generator=generator) for _ in range(2)]
    token_rope = {base: draw_rope(draw, max(1, step.tables._context), generator) for base in BASES}
    middle = draw(st.sampled_from(((), (1,), (1, 1))))
    out, sizes, guards = Step(), {}, []

    def poisoned(*shape, dtype=torch.int32):
        return torch.full(shape, POISON, dtype=dtype).to(device)

    def slots(pool, size):
        """int32, int64 or, where the pool knows pages, pairs."""
        has_pairs = f"{pool}_page_table" in least and not paged
        forms = ("int32", "int64", "pairs") if has_pairs else ("int32", "int64")
        form = draw(st.sampled_from(forms))
        return poisoned(size, 2) if form == "pairs" else poisoned(size, dtype=getattr(torch, form))

    for name in names:
        size = least[name]
        if name.split("_")[0] in BASES:
            size, table = tokens, token_rope[name.split("_")[0]][0]
            buffer = poisoned(size, *middle, table.shape[1], dtype=table.dtype)
        elif name.endswith(("_cos", "_sin")):
            size += spare_groups[name.split("_")[0]]
            buffer = poisoned(size, *middle, dim, dtype=torch.float32)
        elif name.startswith("positions_"):
            size += spare_groups[name.removeprefix("positions_")]
            buffer = poisoned(size, dtype=torch.int64)
        elif name.startswith("out_"):
            pool = name.removeprefix("out_").removesuffix("_loc")
            size = size + spare_groups[pool] if pool in RATIOS else tokens
            buffer = slots(pool, size)
        elif name == "positions":
            size = tokens
            buffer = poisoned(size, dtype=torch.int64)
        elif name.endswith("_page_table"):
            size += draw(st.sampled_from((0, 1, 40)))
            gap = draw(st.sampled_from((0, 0, 5)))
            around = poisoned(rows, size + gap)
            buffer = around[:, :size]
            guards.append(around[:, size:])
        elif name.endswith("_state_locs"):
            size += draw(st.integers(0, 3))
            buffer = poisoned(rows, size)
        elif name == "window_locs":
            size = ((rows + draw(st.integers(0, 2))) * block, size + draw(st.integers(0, 3)))
            buffer = poisoned(size[0], *middle, size[1])
        else:
            entries = {"num_groups": 2, "cu_seqlens": rows + 1}.get(name, rows)
            size = tokens
            buffer = poisoned(entries)
        sizes[name] = size
        setattr(out, name, buffer)
    on_device = {base: tuple(table.to(device) for table in tables) for base, tables in token_rope.items()}
    return Buffers(out, sizes, guards, tuple(table.to(device) for table in rope), on_device, block)


def draw_rope(draw, max_pos, generator):
    """Tables of a RoPE base: of as many rows as there are positions, or of more."""
    shape = max_pos + draw(st.integers(0, 3)), draw(st.sampled_from((0, 1, 6, 8)))
    dtype = draw(st.sampled_from((torch.float32, torch.float16, torch.bfloat16)))
    return tuple(torch.randn(shape, generator=generator).to(dtype) for _ in range(2))

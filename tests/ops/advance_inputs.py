"""Random verifies as they are left on a device, over any kind of address."""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import torch
from hypothesis import strategies as st
from ops.any_tables import INTEGERS, POISON, Tables
from reference.advance_step import Verified
from reference.advance_step import advance_step as oracle

from dsv4_npu_ops import AdvancedStep

HIDDEN_TYPES = (torch.float32, torch.float16, torch.bfloat16)
MODES = ("accepted", "samples", "drafts")


@dataclasses.dataclass
class Verify:
    """Rows of a verify, the tables that they refer to, and how the op is told of them."""

    tables: object  # RequestTables
    pools: dict  # addresses as the oracle takes them
    context: int
    rows: list[Verified]
    mode: str = "accepted"
    ragged: bool = False
    indexed: bool = True
    two_dimensional: bool = False
    final: bool = False
    has_backup: bool = False
    dummies: tuple[int, int] = (0, 0)
    tokens: list[int] = dataclasses.field(default_factory=list)  # of all inputs, with accepted lengths
    hidden: torch.Tensor | None = None
    # of requests, lengths, accepted lengths or drafts, tokens
    dtypes: tuple[torch.dtype, ...] = (torch.int64,) * 4

    def expect(self):
        return oracle(
            self.pools,
            self.rows,
            self.context,
            tokens=self.tokens,
            final=self.final,
            dummies=self.dummies,
            hidden=None if self.hidden is None else self.hidden.double().flatten(1).tolist(),
            # Hidden states of no token still say how wide they are.
            hidden_elems=0 if self.hidden is None else math.prod(self.hidden.shape[1:]),
        )

    def arguments(self, device):
        """Positional and keyword arguments of advance_step."""

        def tensor(values, dtype):
            return torch.tensor(values, dtype=dtype, device=device)

        lengths = tensor([row.seq_len for row in self.rows], self.dtypes[1])
        requests = tensor([row.request for row in self.rows], self.dtypes[0]) if self.indexed else None
        judged = [row.judged for row in self.rows]
        keywords = dict(lengths_are_final=self.final, dummy_slots=self.dummies)
        if self.mode == "accepted":
            accepted, tokens = tensor(judged, self.dtypes[2]), tensor(self.tokens, self.dtypes[3])
            if self.two_dimensional:
                tokens = tokens.view(len(self.rows), -1)
            elif not self.ragged:
                keywords["num_draft_tokens"] = self.rows[0].width if self.rows else 3
        else:
            accepted, tokens = None, tensor(judged, self.dtypes[3]).view(len(self.rows), -1 if self.rows else 3)
        if self.mode == "drafts":
            keywords["num_draft_tokens"] = tensor([row.drafts for row in self.rows], self.dtypes[2])
        if self.ragged:
            ends = itertools.accumulate((row.width for row in self.rows), initial=0)
            keywords["cu_seqlens"] = tensor(list(ends), torch.int32)
        if self.has_backup:
            keywords["backup_tokens"] = tensor([row.backup for row in self.rows], self.dtypes[3])
        if self.hidden is not None:
            keywords["hidden_states"] = self.hidden.to(device)
        return (self.tables, requests, lengths, accepted, tokens), keywords

    def poisoned(self, device, seq_lens=None, counts=True):
        """Buffers for everything; seq_lens: the lengths to change in place."""
        out = AdvancedStep.empty(
            self.tables,
            len(self.rows),
            seq_lens=seq_lens,
            token_dtype=self.dtypes[3],
            hidden_shape=None if self.hidden is None else tuple(self.hidden.shape[1:]),
            hidden_dtype=torch.bfloat16 if self.hidden is None else self.hidden.dtype,
            counts=counts,
        )
        if seq_lens is None:
            out.seq_lens = torch.empty(len(self.rows), dtype=self.dtypes[1], device=device)
        for field in dataclasses.fields(out):
            tensor = getattr(out, field.name)
            if tensor is not None and tensor is not seq_lens:
                tensor.fill_(POISON)
        return out

    def assert_equal(self, got):
        """Everything that there is of a result."""
        want = self.expect()
        wide = dict(seq_lens=self.dtypes[1], token_ids=self.dtypes[3], positions=torch.int64, sampled_index=torch.int64)
        for field in dataclasses.fields(got):
            tensor = getattr(got, field.name)
            if tensor is None:
                continue
            if field.name == "hidden_states":
                assert tensor.dtype == self.hidden.dtype and tensor.shape[1:] == self.hidden.shape[1:]
                assert tensor.double().flatten(1).tolist() == want[field.name]
            else:
                assert tensor.dtype == wide.get(field.name, torch.int32), field.name
                assert tensor.tolist() == want.get(field.name, []), field.name


def draw_row(draw, step, first, width, num_requests, columns):
    """A row with inputs [first, first + width); columns: of the samples."""
    kind = draw(st.sampled_from(["live", "live", "live", "padding", "sat out"]))
    drafts = draw(st.integers(0, max(0, width - 1))) if step.mode == "drafts" else None
    most = width if drafts is None else min(width, drafts + 1)
    count = draw(st.integers(0, min(most, columns))) if kind != "sat out" else 0
    kept = count if drafts is None else width if drafts == 0 else width - drafts - 1 + count
    grown = width if step.final else kept
    length = draw(st.one_of(st.just(step.context - grown), st.integers(0, step.context - grown)))
    seq_len = max(1, length + width if step.final else length)
    request = draw(st.integers(0, num_requests - 1))
    if kind == "padding":
        # Nothing of it is looked at.
        seq_len, request, count = 0, draw(st.integers(-9, 999)), draw(st.integers(0, columns))
        drafts = None if drafts is None else draw(st.integers(-9, 99))
    judged = draw(st.integers(-9, 99)) if kind == "padding" else count
    if step.mode != "accepted":
        token = st.integers(0, 1 << 30)
        rest = [-1, *draw(st.lists(st.one_of(st.just(-1), token), min_size=columns, max_size=columns))]
        judged = [*draw(st.lists(token, min_size=count, max_size=count)), *rest][:columns]
    backup = draw(st.integers(0, 1 << 30)) if step.has_backup else 0
    return Verified(request, seq_len, first, width, judged, drafts, backup)


@st.composite
def verifies(draw, device, mode):
    context, num_requests, indexed = draw(st.integers(10, 40)), draw(st.integers(1, 5)), draw(st.booleans())
    seed = draw(st.integers(0, 1 << 30))
    # Rings of columns need no batch here: any number will do.
    tables = Tables(seed, device, num_requests, context, 20, SimpleNamespace(rows=[]))
    for pool in ("full", "swa", "c4"):
        if draw(st.sampled_from((True, True, False))):
            tables.add(draw, pool, small=True)
    dummy = st.sampled_from((0, -1, 7, 1 << 20))
    step = Verify(
        tables.request_tables(),
        tables.plain,
        context,
        [],
        mode,
        ragged=draw(st.booleans()),
        indexed=indexed,
        final=draw(st.booleans()),
        has_backup=draw(st.booleans()),
        dummies=(draw(dummy), draw(dummy)),
        dtypes=tuple(draw(st.sampled_from(INTEGERS)) for _ in range(4)),
    )
    # Rows of samples are as long as those of inputs, unless offsets say how long these are.
    width = draw(st.integers(1, 9))
    columns = draw(st.integers(1, 9)) if step.ragged and mode != "accepted" else 9 if mode == "accepted" else width
    first = 0
    for index in range(draw(st.integers(0, 21 if indexed else num_requests))):
        inputs = draw(st.integers(0, 9)) if step.ragged else width
        row = draw_row(draw, step, first, inputs, num_requests, columns)
        step.rows.append(row if indexed else dataclasses.replace(row, request=index))
        first += inputs
    spare = draw(st.integers(0, 3))
    generator = torch.Generator().manual_seed(seed)
    step.two_dimensional = mode == "accepted" and not step.ragged and spare == 0 and bool(step.rows)
    step.tokens = torch.randint(1, 1 << 30, (first + spare,), generator=generator).tolist()
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(1,), (7,), (2, 8), (100,), (3, 64)]))
        hidden = torch.randn(first + spare, *shape, generator=generator)
        step.hidden = hidden.to(draw(st.sampled_from(HIDDEN_TYPES)))
    return step

"""What follows from a verify's accepted lengths, against its oracle: uniform and ragged, both overloads, in place."""

import dataclasses
import itertools
import math

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from ops.step_inputs import INTEGERS, as_lists, filled_tables
from reference.advance_step import advance_step as oracle

from dsv4_npu_ops import AdvancedStep, KVLayout, advance_step

HIDDEN_TYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclasses.dataclass
class Verified:
    """Rows of a verify as plain lists, and the tables that they refer to."""

    layout: KVLayout
    tables: object
    requests: list[int]
    lengths: list[int]
    accepted: list[int]
    widths: list[int]
    ragged: bool
    two_dimensional: bool
    tokens: list[int]
    hidden: torch.Tensor | None
    dtypes: tuple[torch.dtype, ...]

    def expect(self):
        rows = as_lists(self.tables)
        starts = [0, *itertools.accumulate(self.widths)][:-1]
        hidden = None if self.hidden is None else self.hidden.double().flatten(1).tolist()
        elems = 0 if self.hidden is None else math.prod(self.hidden.shape[1:])
        return oracle(
            rows["full"], rows["swa"], self.requests, self.lengths, self.accepted, self.tokens, starts,
            self.layout.max_context_len, hidden, elems,
        )  # fmt: skip

    def arguments(self, device):
        values = (self.requests, self.lengths, self.accepted, self.tokens)
        tensors = [torch.tensor(v, dtype=d, device=device) for v, d in zip(values, self.dtypes, strict=True)]
        keywords = {"hidden_states": None if self.hidden is None else self.hidden.to(device)}
        if self.ragged:
            offsets = [0, *itertools.accumulate(self.widths)]
            keywords["cu_seqlens"] = torch.tensor(offsets, dtype=torch.int32, device=device)
        elif self.two_dimensional:
            tensors[3] = tensors[3].view(len(self.requests), -1)
        else:
            keywords["num_draft_tokens"] = self.widths[0] if self.widths else 3
        return (self.tables, *tensors), keywords

    def poisoned(self, device, seq_lens=None):
        shape = None if self.hidden is None else tuple(self.hidden.shape[1:])
        dtype = torch.bfloat16 if self.hidden is None else self.hidden.dtype
        out = AdvancedStep.empty(
            self.layout,
            len(self.requests),
            seq_lens=seq_lens,
            token_dtype=self.dtypes[3],
            hidden_shape=shape,
            hidden_dtype=dtype,
        )
        if seq_lens is None:
            out.seq_lens = torch.empty(len(self.requests), dtype=self.dtypes[1], device=device)
        for field in dataclasses.fields(out):
            tensor = getattr(out, field.name)
            if tensor is not None and tensor is not seq_lens:
                tensor.fill_(-77)
        return out


def draw_row(draw, width, context, max_requests):
    """request, L, a of a row of this width."""
    kind = draw(st.sampled_from(["live", "live", "live", "padding", "sat out"]))
    if kind == "live" and width:
        accepted = draw(st.integers(1, width))
        length = draw(st.one_of(st.just(context - accepted), st.integers(1, context - accepted)))
        return draw(st.integers(0, max_requests - 1)), length, accepted
    if kind == "sat out":
        return draw(st.integers(-9, 999)), draw(st.integers(1, context)), 0
    # Nothing of a padding row is looked at.
    return draw(st.integers(-9, 999)), 0, draw(st.integers(-9, 99))


@st.composite
def verified(draw, device):
    context = draw(st.integers(10, 40))
    pools = draw(st.lists(st.sampled_from(["full", "swa", "c4"]), unique=True))
    max_requests = draw(st.integers(1, 5))
    layout = KVLayout(16, 20, max_requests, context, {pool: 4 for pool in pools}, device)
    tables = filled_tables(layout, draw(st.integers(0, 1 << 30)), device, draw(st.sampled_from([0, 0, 3])))
    ragged, count = draw(st.booleans()), draw(st.integers(0, 21))
    width = draw(st.integers(1, 9))
    widths = [draw(st.integers(0, 9)) if ragged else width for _ in range(count)]
    rows = [draw_row(draw, w, context, max_requests) for w in widths]
    spare = draw(st.integers(0, 3))
    two_dimensional = not ragged and spare == 0 and count > 0
    total = sum(widths) + spare
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1 << 30)))
    tokens = torch.randint(1, 1 << 30, (total,), generator=generator).tolist()
    hidden = None
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(1,), (7,), (2, 8), (100,), (3, 64)]))
        hidden = torch.randn(total, *shape, generator=generator).to(draw(st.sampled_from(HIDDEN_TYPES)))
    dtypes = tuple(draw(st.sampled_from(INTEGERS)) for _ in range(4))
    requests, lengths, accepted = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    return Verified(
        layout, tables, requests, lengths, accepted, widths, ragged, two_dimensional, tokens, hidden, dtypes
    )


def assert_equal(got, want, step):
    dtypes = dict(seq_lens=step.dtypes[1], token_ids=step.dtypes[3], positions=torch.int64, sampled_index=torch.int64)
    for field in dataclasses.fields(got):
        tensor = getattr(got, field.name)
        if field.name != "hidden_states":
            assert tensor.dtype == dtypes.get(field.name, torch.int32), field.name
            assert tensor.tolist() == want[field.name], field.name
        elif step.hidden is None:
            assert tensor is None
        else:
            assert tensor.dtype == step.hidden.dtype and tensor.shape[1:] == step.hidden.shape[1:]
            assert tensor.double().flatten(1).tolist() == want[field.name]


@given(data=st.data())
def test_new_outputs_equal_the_oracle(device, data):
    step = data.draw(verified(device))
    arguments, keywords = step.arguments(device)
    assert_equal(advance_step(*arguments, **keywords), step.expect(), step)


@given(data=st.data())
def test_buffers_are_overwritten_and_lengths_change_in_place(device, data):
    step = data.draw(verified(device))
    arguments, keywords = step.arguments(device)
    out = step.poisoned(device, arguments[2] if data.draw(st.booleans()) else None)
    assert advance_step(*arguments, **keywords, out=out) is out
    assert_equal(out, step.expect(), step)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("rows, elems", [(3, 40_000), (70, 1_000), (600, 3), (1, 33), (9, 32_768), (600, 17)])
def test_rows_of_any_size(device, rows, elems, in_place):
    """More rows than a block reads at a time, and hidden rows longer than a tile."""
    layout = KVLayout(16, 20, rows, 600, {"full": 4, "swa": 4}, device)
    generator = torch.Generator().manual_seed(rows)
    accepted = [(3 * i) % 3 + (i % 5 != 4) for i in range(rows)]
    lengths = [0 if i % 7 == 3 else 5 + i % 500 for i in range(rows)]
    hidden = torch.randn(2 * rows, elems, generator=generator).bfloat16()
    step = Verified(
        layout, filled_tables(layout, 3, device), list(range(rows)), lengths, accepted, [2] * rows, False, False,
        list(range(100, 100 + 2 * rows)), hidden, (torch.int64, torch.int32, torch.int32, torch.int64),
    )  # fmt: skip
    arguments, keywords = step.arguments(device)
    out = step.poisoned(device, arguments[2] if in_place else None)
    got = advance_step(*arguments, **keywords, out=out)
    want = step.expect()
    for name in ("seq_lens", "token_ids", "positions", "out_full_loc", "out_swa_loc", "sampled_index"):
        assert getattr(got, name).tolist() == want[name]
    assert torch.equal(got.hidden_states.double(), torch.tensor(want["hidden_states"], dtype=torch.float64))


def test_a_row_without_a_token_among_no_tokens_at_all(device):
    """Hidden states of no token still say how wide the row of zeros is."""
    layout = KVLayout(16, 20, 2, 40, {"full": 4}, device)
    arguments = [torch.tensor([value], device=device) for value in (0, 7, 0)]
    nothing = torch.empty(0, dtype=torch.int64, device=device)
    got = advance_step(
        filled_tables(layout, 0, device),
        *arguments,
        nothing,
        cu_seqlens=torch.zeros(2, dtype=torch.int32, device=device),
        hidden_states=torch.empty(0, 2, 3, device=device),
    )
    assert (got.seq_lens.tolist(), got.token_ids.tolist(), got.positions.tolist()) == ([7], [0], [0])
    assert got.hidden_states.tolist() == [[[0.0] * 3] * 2]


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def arguments_of(**changes):
    layout = KVLayout(16, 20, 4, 300, {"full": 8, "swa": 8})
    tables = filled_tables(layout, 0, "cpu")
    for name in ("full", "swa"):
        setattr(tables, name, changes.pop(name, getattr(tables, name)))
    rows = dict(
        req_pool_indices=int32(0, 1),
        seq_lens=int32(5, 6),
        accepted_lens=int32(2, 3),
        token_ids=torch.arange(6),
        num_draft_tokens=3,
        hidden_states=torch.zeros(6, 4),
        out=AdvancedStep.empty(layout, 2, hidden_shape=(4,), hidden_dtype=torch.float32),
    )
    for name in [name for name in changes if name.startswith("out_") or name.startswith("next_")]:
        setattr(rows["out"], name.removeprefix("next_"), changes.pop(name))
    return (tables,), rows | changes


BAD_ARGUMENTS = [
    (dict(req_pool_indices=torch.zeros(2)), "req_pool_indices has dtype Float, expected Int or Long"),
    (dict(seq_lens=int32(1, 2, 3)), "seq_lens has shape [3], expected [2]"),
    (dict(accepted_lens=int32(1, 2, 3, 4)[::2]), "accepted_lens has strides [2]"),
    (dict(token_ids=torch.zeros(6)), "token_ids has dtype Float, expected Int or Long"),
    (dict(token_ids=torch.arange(5)), "token_ids has 5 entries, expected at least 3 for each of 2 rows"),
    (dict(token_ids=torch.arange(12)[::2]), "token_ids has strides [2]"),
    (dict(token_ids=torch.arange(6).view(3, 2)), "token_ids has shape [3, 2], expected [2, 3]"),
    (dict(num_draft_tokens=-1), "num_draft_tokens is -1, expected at least 0"),
    (dict(num_draft_tokens=None), "num_draft_tokens and cu_seqlens are None, expected one of them"),
    (dict(num_draft_tokens="3"), "num_draft_tokens is '3', expected an integer"),
    (dict(cu_seqlens=int32(0, 3, 6)), "num_draft_tokens is 3, expected None beside cu_seqlens"),
    (dict(num_draft_tokens=None, cu_seqlens=int32(0, 6)), "cu_seqlens has shape [2], expected [3]"),
    (dict(num_draft_tokens=None, cu_seqlens=torch.zeros(3)), "cu_seqlens has dtype Float, expected Int"),
    (dict(hidden_states=torch.zeros(6)), "hidden_states has shape [6], expected [6, ..], a row for each token"),
    (dict(hidden_states=torch.zeros(5, 4)), "hidden_states has shape [5, 4], expected [6, ..]"),
    (dict(hidden_states=torch.zeros(6, 4).int()), "hidden_states has dtype Int, expected Float or Half or BFloat16"),
    (dict(hidden_states=torch.zeros(6, 8)[:, ::2]), "hidden_states has strides [8, 2]"),
    (dict(hidden_states=None), "out.hidden_states is a tensor, expected None like hidden_states"),
    (dict(next_hidden_states=None), "out.hidden_states is None, expected a tensor like hidden_states"),
    (dict(next_hidden_states=torch.zeros(2, 5)), "out.hidden_states has shape [2, 5], expected [2, 4]"),
    (dict(full=torch.zeros(4, 9, dtype=torch.int32)), "tables.full has 9 columns, expected at least 300"),
    (dict(swa=torch.zeros(3, 300, dtype=torch.int32)), "tables.swa has 3 rows, expected 4 like the other tables"),
    (dict(next_seq_lens=torch.zeros(2, dtype=torch.int64)), "out.seq_lens has dtype Long, expected Int"),
    (dict(next_token_ids=int32(0, 0)), "out.token_ids has dtype Int, expected Long"),
    (dict(out_swa_loc=int32(0)), "out.out_swa_loc has shape [1], expected [2]"),
]

# What a device cannot know before it runs.
BAD_VALUES = [
    (dict(seq_lens=int32(5, -1)), "seq_lens[1] is -1, expected at least 0"),
    (dict(seq_lens=int32(5, 301), accepted_lens=int32(2, 0)), "seq_lens[1] is 301 before 0 accepted tokens, expected"),
    (
        dict(seq_lens=int32(299, 6)),
        "seq_lens[0] is 299 before 2 accepted tokens, expected at most 300 (tables.layout.max",
    ),
    (dict(accepted_lens=int32(2, 4)), "accepted_lens[1] is 4, expected 0 to 3 (tokens of the row)"),
    (dict(accepted_lens=int32(-1, 1)), "accepted_lens[0] is -1, expected 0 to 3 (tokens of the row)"),
    (dict(req_pool_indices=int32(0, 4)), "req_pool_indices[1] is 4, expected 0 <= index < 4 (rows of the tables)"),
    (
        dict(num_draft_tokens=None, cu_seqlens=int32(0, 3, 7)),
        "cu_seqlens[1] and the next are 3 and 7, expected an interval of the 6 token_ids",
    ),
    (dict(num_draft_tokens=None, cu_seqlens=int32(0, 3, 2)), "cu_seqlens[1] and the next are 3 and 2, expected an"),
    (dict(num_draft_tokens=None, cu_seqlens=int32(-1, 3, 6)), "cu_seqlens[0] and the next are -1 and 3, expected an"),
]


@pytest.mark.parametrize(
    "bad, message", [*BAD_ARGUMENTS, *(pytest.param(*case, marks=pytest.mark.cpu_only) for case in BAD_VALUES)]
)
def test_bad_calls_raise_and_write_nothing(bad, message):
    positional, keywords = arguments_of(**bad)
    out = keywords["out"]
    buffers = [t for field in dataclasses.fields(out) if (t := getattr(out, field.name)) is not None]
    for tensor in buffers:
        tensor.fill_(-77)
    with pytest.raises(ValueError) as error:
        advance_step(*positional, **keywords)
    assert f"advance_step: {message}" in str(error.value)
    assert all((tensor == -77).all() for tensor in buffers)


def test_lengths_that_overlap_in_part_are_refused():
    lengths = int32(5, 6, 7)
    positional, keywords = arguments_of(seq_lens=lengths[:2], next_seq_lens=lengths[1:])
    with pytest.raises(ValueError, match=r"out\.seq_lens overlaps seq_lens in part, expected the same tensor or anoth"):
        advance_step(*positional, **keywords)


@pytest.mark.one_variant
def test_opcheck(device):
    (tables,), rows = arguments_of()
    inputs = (tables.full, tables.swa, rows["req_pool_indices"], rows["seq_lens"], rows["accepted_lens"])
    for offsets, hidden in ((None, rows["hidden_states"]), (int32(0, 3, 6), None)):
        arguments = (*inputs, rows["token_ids"], offsets, hidden, 0 if offsets is not None else 3, 300)
        opcheck(torch.ops.dsv4_npu_ops.advance_step.default, arguments)
        out = rows["out"]
        buffers = dict(
            next_seq_lens=out.seq_lens,
            extend_lens=out.extend_lens,
            next_token_ids=out.token_ids,
            positions=out.positions,
            out_full_loc=out.out_full_loc,
            out_swa_loc=out.out_swa_loc,
            sampled_index=out.sampled_index,
            next_hidden=None if hidden is None else out.hidden_states,
        )
        opcheck(torch.ops.dsv4_npu_ops.advance_step.out, arguments, buffers)


def test_the_example_of_the_readme(device):
    layout = KVLayout(16, 20, 3, 300, {"full": 20, "swa": 20}, device)
    tables = filled_tables(layout, 1, device)
    tables.full[2, 7] = 91
    arguments = [torch.tensor(values, device=device) for values in ([2, 0, 0], [5, 0, 297], [2, 1, 3])]
    tokens = torch.tensor([[11, 12, 13], [0, 0, 0], [21, 22, 23]], device=device)
    hidden = torch.arange(9.0, device=device)[:, None] + 1
    got = advance_step(tables, *arguments, tokens, hidden_states=hidden)
    assert got.seq_lens.tolist() == [7, 0, 300]
    assert got.extend_lens.tolist() == [2, 0, 3]
    assert got.token_ids.tolist() == [12, 0, 23]
    assert got.positions.tolist() == [7, 0, 0]
    assert got.out_full_loc.tolist() == [91, 0, 0]
    assert got.sampled_index.tolist() == [1, 0, 8]
    assert got.hidden_states.flatten().tolist() == [2, 0, 9]


NEGATIVE_LENGTH, BEYOND_CONTEXT, BAD_TOKENS, BAD_ACCEPTED, UNKNOWN_REQUEST = 1, 2, 3, 4, 5

# request, L, a and the tokens [first, end) of the middle row; fault, value
BAD_ROWS = [
    ((1, -5, 2, 3, 6), NEGATIVE_LENGTH, -5),
    ((1, 2**62, 2, 3, 6), BEYOND_CONTEXT, 0),
    ((1, 298, 3, 3, 6), BEYOND_CONTEXT, 298),
    ((1, 301, 0, 3, 6), BEYOND_CONTEXT, 301),
    ((1, 5, 4, 3, 6), BAD_ACCEPTED, 4),
    ((1, 5, -1, 3, 6), BAD_ACCEPTED, -1),
    ((4, 5, 2, 3, 6), UNKNOWN_REQUEST, 4),
    ((-1, 5, 2, 3, 6), UNKNOWN_REQUEST, -1),
    ((1, 5, 2, 3, 10), BAD_TOKENS, 10),
    ((1, 5, 2, 3, 2), BAD_TOKENS, 2),
]


@pytest.mark.device_only
@pytest.mark.parametrize("blocks", [1, 7])
@pytest.mark.parametrize("row, fault, value", BAD_ROWS)
def test_a_bad_row_is_padding_and_reported(ascend_sim, blocks, row, fault, value):
    request, length, accepted, first, end = row
    layout = KVLayout(16, 20, 4, 300, {"full": 8, "swa": 8})
    tables, hidden = filled_tables(layout, 0, "cpu"), torch.randn(9, 5)
    ends = [first, end, 9] if end in (2, 10) else [3, 6, 9]
    offsets = int32(0, *ends)
    values = ([0, request, 2], [7, length, 9], [1, accepted, 1])
    arguments = [torch.tensor(column) for column in values]
    ascend_sim.force_blocks(blocks)
    got = advance_step(tables, *arguments, torch.arange(9), cu_seqlens=offsets, hidden_states=hidden)
    ascend_sim.force_blocks(0)
    bad_end = 10 in ends
    # The last row's tokens then end before they begin.
    others = ([0, 0, 0], [7, 0, 0], [1, 0, 0]) if bad_end else ([0, 0, 2], [7, 0, 9], [1, 0, 1])
    lists = as_lists(tables)
    want = oracle(lists["full"], lists["swa"], *others, list(range(9)), offsets.tolist()[:-1], 300, hidden.tolist(), 5)
    for field in dataclasses.fields(got):
        assert getattr(got, field.name).tolist() == want[field.name], field.name
    assert ascend_sim.take_errors() == [[12, fault, 1, value, 0, 0, 0, 0]]


@pytest.mark.simulated_only
def test_hidden_rows_move_once(ascend_sim):
    """64 rows of 8 KB: close to the bytes that must move, over many blocks."""
    layout = KVLayout(16, 20, 64, 300, {"full": 8, "swa": 8})
    tables, hidden = filled_tables(layout, 0, "cpu"), torch.randn(256, 4096).half()
    rows = [torch.arange(64), torch.full((64,), 9), torch.arange(64) % 4 + 1]
    ascend_sim.take_counters()
    got = advance_step(tables, *rows, torch.arange(256), num_draft_tokens=4, hidden_states=hidden)
    assert torch.equal(got.hidden_states, hidden[torch.arange(64) * 4 + rows[2] - 1])
    (launch,) = ascend_sim.take_counters()
    assert launch["kernel"] == "advance_step" and launch["blocks"] > 8
    outputs = [getattr(got, field.name) for field in dataclasses.fields(got)]
    assert launch["mte3_bytes"] == sum(tensor.numel() * tensor.element_size() for tensor in outputs)
    assert launch["mte2_bytes"] <= 1.05 * launch["mte3_bytes"]
    assert launch["balance"]["most_bytes"] <= 1.1 * launch["balance"]["least_bytes"]

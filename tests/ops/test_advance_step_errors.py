"""Bad calls of advance_step: one line says what is wrong, and nothing is written; on a device a bad row is padding."""

import dataclasses

import pytest
import torch
from backends import opcheck
from ops.advance_inputs import Verify
from ops.step_inputs import filled_tables, plain_pools
from reference.advance_step import Verified

from dsv4_npu_ops import AdvancedStep, KVLayout, PageTable, RequestTables, SlotTable, advance_step


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def make_tables():
    return filled_tables(KVLayout(16, 20, 4, 300, {"full": 8, "swa": 8}), 0, "cpu")


def with_table(pool, address):
    return RequestTables.of(make_tables().pools | {pool: address}, max_context_len=300)


def arguments_of(**changes):
    """A good call of two rows with three inputs each; changes of ``out`` begin with next_."""
    arguments = dict(
        tables=make_tables(),
        req_pool_indices=int32(0, 1),
        seq_lens=int32(5, 6),
        accepted_lens=int32(2, 3),
        token_ids=torch.arange(6),
        num_draft_tokens=3,
        hidden_states=torch.zeros(6, 4),
        out=AdvancedStep.empty(make_tables(), 2, hidden_shape=(4,), hidden_dtype=torch.float32, counts=True),
    )
    for name in [name for name in changes if name.startswith("next_")]:
        setattr(arguments["out"], name.removeprefix("next_"), changes.pop(name))
    return arguments | changes


SAMPLES = dict(accepted_lens=None, token_ids=torch.tensor([[7, 8, -1], [9, -1, -1]]), num_draft_tokens=None)
RAGGED = dict(num_draft_tokens=None, cu_seqlens=int32(0, 3, 6))
DRAFTS = SAMPLES | RAGGED | dict(num_draft_tokens=int32(2, 2))

BAD_ARGUMENTS = [
    (dict(req_pool_indices=torch.zeros(2)), "req_pool_indices has dtype Float, expected Int or Long"),
    (dict(req_pool_indices=int32(0)), "req_pool_indices has shape [1], expected [2]"),
    (dict(seq_lens=torch.zeros(2, 1)), "seq_lens has shape [2, 1], expected 1 dimension"),
    (dict(seq_lens=int32(1, 2, 3)), "req_pool_indices has shape [2], expected [3]"),
    (dict(accepted_lens=int32(1, 2, 3, 4)[::2]), "accepted_lens has strides [2]"),
    (dict(token_ids=torch.zeros(6)), "token_ids has dtype Float, expected Int or Long"),
    (
        dict(token_ids=torch.arange(5), hidden_states=torch.zeros(5, 4)),
        "there are 5 tokens, expected at least 3 for each",
    ),
    (dict(token_ids=torch.arange(12)[::2]), "token_ids has strides [2]"),
    (dict(token_ids=torch.arange(6).view(3, 2)), "token_ids has shape [3, 2], expected [2, 3]"),
    (dict(num_draft_tokens=-1), "num_draft_tokens is -1, expected at least 0"),
    (dict(num_draft_tokens=None), "num_draft_tokens and cu_seqlens are None, expected one of them"),
    (dict(num_draft_tokens="3"), "num_draft_tokens is '3', expected an integer"),
    (dict(cu_seqlens=int32(0, 3, 6)), "num_draft_tokens is 3, expected None beside cu_seqlens"),
    (RAGGED | dict(num_draft_tokens=int32(2, 2)), "num_draft_tokens is a tensor beside accepted_lens, expected None"),
    (RAGGED | dict(cu_seqlens=int32(0, 6)), "cu_seqlens has shape [2], expected [3]"),
    (RAGGED | dict(cu_seqlens=torch.zeros(3)), "cu_seqlens has dtype Float, expected Int"),
    (SAMPLES | RAGGED | dict(token_ids=torch.arange(6)), "token_ids has shape [6], expected 2 dimensions"),
    (SAMPLES | dict(token_ids=torch.zeros(3, 3).long()), "token_ids has shape [3, 3], expected [2, 3]"),
    (SAMPLES | RAGGED | dict(token_ids=torch.zeros(2, 0).long()), "columns of token_ids is 0, expected at least 1"),
    (DRAFTS | dict(num_draft_tokens=int32(1, 2, 3)), "num_draft_tokens has shape [3], expected [2]"),
    (DRAFTS | dict(num_draft_tokens=torch.zeros(2)), "num_draft_tokens has dtype Float, expected Int or Long"),
    (SAMPLES | dict(backup_tokens=int32(1, 2)), "backup_tokens has dtype Int, expected Long"),
    (SAMPLES | dict(backup_tokens=torch.arange(3)), "backup_tokens has shape [3], expected [2]"),
    (SAMPLES | dict(backup_tokens=torch.arange(4)[::2]), "backup_tokens has strides [2]"),
    (dict(dummy_slots=(0,)), "dummy_slots has 1 entries, expected 2, for full and swa"),
    (dict(dummy_slots=(0, 2**31)), "dummy_slots is 2147483648, expected -2147483647 to 2147483647"),
    (dict(hidden_states=torch.zeros(6)), "hidden_states has shape [6], expected [6, ..], a row for each token"),
    (dict(hidden_states=torch.zeros(5, 4)), "hidden_states has shape [5, 4], expected [6, ..]"),
    (SAMPLES | dict(hidden_states=torch.zeros(5, 4)), "there are 5 tokens, expected at least 3 for each of 2 rows"),
    (dict(hidden_states=torch.zeros(6, 4).int()), "hidden_states has dtype Int, expected Float or Half or BFloat16"),
    (dict(hidden_states=torch.zeros(6, 8)[:, ::2]), "hidden_states has strides [8, 2]"),
    (dict(hidden_states=None), "out.hidden_states is a tensor, expected None like hidden_states"),
    (dict(next_hidden_states=None), "out.hidden_states is None, expected a tensor like hidden_states"),
    (dict(next_hidden_states=torch.zeros(2, 5)), "out.hidden_states has shape [2, 5], expected [2, 4]"),
    (
        dict(tables=with_table("full", SlotTable(torch.zeros(4, 9, dtype=torch.int32), 16))),
        "table of pool full has 9 columns for 9 units, expected room for 300 (tables.max_context_len is 300)",
    ),
    (
        dict(tables=with_table("swa", PageTable(torch.zeros(4, 0, dtype=torch.int32), 16))),
        "table of pool swa has 0 columns, expected at least 1",
    ),
    (dict(next_seq_lens=torch.zeros(2, dtype=torch.int64)), "out.seq_lens has dtype Long, expected Int"),
    (dict(next_token_ids=int32(0, 0)), "out.token_ids has dtype Int, expected Long"),
    (dict(next_out_swa_loc=int32(0)), "out.out_swa_loc has shape [1], expected [2]"),
    (dict(next_valid_counts=torch.zeros(2)), "out.valid_counts has dtype Float, expected Int"),
    (dict(next_rejected_lens=int32(1, 2, 3, 4)[::2]), "out.rejected_lens has strides [2]"),
]

# What a device cannot know before it runs.
BAD_VALUES = [
    (dict(seq_lens=int32(5, -1)), "seq_lens[1] is -1, expected at least 0"),
    (dict(seq_lens=int32(5, 301), accepted_lens=int32(2, 0)), "seq_lens[1] is 301, expected at most 300 (tables.max"),
    (dict(seq_lens=int32(299, 6)), "seq_lens[0] is 299 before 2 accepted tokens, expected at most 300 (tables."),
    (
        DRAFTS | dict(seq_lens=int32(299, 6), num_draft_tokens=int32(0, 0), token_ids=torch.tensor([[7], [8]])),
        "seq_lens[0] is 299 before 3 accepted tokens, expected at most 300 (tables.max_context_len) with them",
    ),
    (dict(accepted_lens=int32(2, 4)), "accepted_lens[1] is 4, expected 0 to 3 (tokens of the row)"),
    (dict(accepted_lens=int32(-1, 1)), "accepted_lens[0] is -1, expected 0 to 3 (tokens of the row)"),
    (
        SAMPLES | RAGGED | dict(cu_seqlens=int32(0, 1, 6)),
        "number of samples in token_ids[0] is 2, expected 0 to 1 (tokens of the row)",
    ),
    (
        DRAFTS | dict(num_draft_tokens=int32(0, 2)),
        "number of samples in token_ids[0] is 2, expected 0 to 1 (drafts and one more)",
    ),
    (DRAFTS | dict(num_draft_tokens=int32(2, 3)), "num_draft_tokens[1] is 3, expected 0, or less than 3 (tokens of"),
    (DRAFTS | dict(num_draft_tokens=int32(-1, 2)), "num_draft_tokens[0] is -1, expected 0, or less than 3 (tokens of"),
    (dict(req_pool_indices=int32(0, 4)), "req_pool_indices[1] is 4, expected 0 <= index < 4 (rows of the tables)"),
    (
        dict(tables=make_tables(), req_pool_indices=None, seq_lens=int32(0, 0, 0, 0, 9), accepted_lens=int32(*[1] * 5),
             token_ids=torch.arange(5), num_draft_tokens=1, hidden_states=None, out=None),
        "seq_lens has tokens in row 4, expected at most 4 rows (those of the tables)",
    ),
    (RAGGED | dict(cu_seqlens=int32(0, 3, 7)), "cu_seqlens[1] and the next are 3 and 7, expected an interval of the 6"),
    (RAGGED | dict(cu_seqlens=int32(0, 3, 2)), "cu_seqlens[1] and the next are 3 and 2, expected an interval of"),
    (RAGGED | dict(cu_seqlens=int32(-1, 3, 6)), "cu_seqlens[0] and the next are -1 and 3, expected an interval of"),
    (
        RAGGED | dict(seq_lens=int32(2, 6), lengths_are_final=True),
        "cu_seqlens[0] and the next are 0 and 3, expected an interval of the 6 tokens of at most 2 (seq_lens counts",
    ),
    (
        dict(seq_lens=int32(5, 2), lengths_are_final=True),
        "seq_lens[1] is 2, expected at least 3 (tokens of the row, which it counts)",
    ),
]  # fmt: skip


def buffers_of(out):
    return [tensor for field in dataclasses.fields(out) if (tensor := getattr(out, field.name)) is not None]


@pytest.mark.parametrize(
    "bad, message", [*BAD_ARGUMENTS, *(pytest.param(*case, marks=pytest.mark.cpu_only) for case in BAD_VALUES)]
)
def test_bad_calls_raise_and_write_nothing(bad, message):
    arguments = arguments_of(**bad)
    buffers = buffers_of(arguments["out"]) if arguments["out"] is not None else []
    for tensor in buffers:
        tensor.fill_(-77)
    with pytest.raises(ValueError) as error:
        advance_step(**arguments)
    assert f"advance_step: {message}" in str(error.value)
    assert all((tensor == -77).all() for tensor in buffers)


def test_lengths_that_overlap_in_part_are_refused():
    lengths = int32(5, 6, 7)
    with pytest.raises(ValueError, match=r"out\.seq_lens overlaps seq_lens in part, expected the same tensor or"):
        advance_step(**arguments_of(seq_lens=lengths[:2], next_seq_lens=lengths[1:]))


def test_a_step_without_lengths_or_tokens():
    lengths, tokens = int32(5, 6), int32(7, 8)
    assert AdvancedStep(lengths, token_ids=tokens).lengths_and_tokens() == (lengths, tokens)
    for step, name in ((AdvancedStep(token_ids=tokens), "seq_lens"), (AdvancedStep(lengths), "token_ids")):
        with pytest.raises(ValueError, match=f"lengths_and_tokens: {name} is None, expected a step that asked for it"):
            step.lengths_and_tokens()


def op_arguments(tables, rows, **changes):
    """Arguments of the op itself."""
    taken = ("seq_lens", "token_ids", "hidden_states")
    names = [field.name for field in dataclasses.fields(rows["out"])]
    out = {f"next_{name}" if name in taken else name: getattr(rows["out"], name) for name in names}
    arguments = dict(
        tables=tables.op_token_pools[0],
        addressing=tables.op_token_pools[1],
        req_pool_indices=rows["req_pool_indices"],
        seq_lens=rows["seq_lens"],
        accepted_lens=rows["accepted_lens"],
        token_ids=rows["token_ids"],
        cu_seqlens=None,
        num_draft_tokens=None,
        backup_tokens=None,
        hidden_states=rows["hidden_states"],
        width=3,
        max_context_len=300,
        lengths_are_final=False,
        dummy_slots=(0, 0),
    )
    return arguments | out | changes


def test_slots_of_a_pool_that_does_not_exist():
    rows, op = arguments_of(), torch.ops.dsv4_npu_ops.advance_step.default
    only_full = RequestTables.of({"full": make_tables().pools["full"]}, max_context_len=300)
    with pytest.raises(ValueError, match="advance_step: out_swa_loc is asked for, expected a pool swa that exists"):
        op(**op_arguments(only_full, rows))


@pytest.mark.one_variant
@pytest.mark.parametrize("changes", [{}, RAGGED, SAMPLES, DRAFTS], ids=["accepted", "ragged", "samples", "drafts"])
def test_opcheck(device, changes):
    rows = arguments_of()
    given = {name: value for name, value in changes.items() if name != "num_draft_tokens"}
    if isinstance(changes.get("num_draft_tokens"), torch.Tensor):
        given["num_draft_tokens"] = changes["num_draft_tokens"]
    arguments = op_arguments(rows["tables"], rows, **given)
    opcheck(torch.ops.dsv4_npu_ops.advance_step.default, (), arguments)


NEGATIVE_LENGTH, BEYOND_CONTEXT, BAD_TOKENS, BAD_ACCEPTED, UNKNOWN_REQUEST, BAD_DRAFTS = 1, 2, 3, 4, 5, 6

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
    tables, hidden = make_tables(), torch.randn(9, 5)
    ends = [first, end, 9] if end in (2, 10) else [3, 6, 9]
    values = ([0, request, 2], [7, length, 9], [1, accepted, 1])
    arguments = [torch.tensor(column) for column in values]
    ascend_sim.force_blocks(blocks)
    got = advance_step(tables, *arguments, torch.arange(9), cu_seqlens=int32(0, *ends), hidden_states=hidden)
    ascend_sim.force_blocks(0)
    # Where those of the middle row end too late, the tokens of the last one end before they begin.
    last = Verified(0, 0, 0, 0, 0) if end == 10 else Verified(2, 9, ends[1], 9 - ends[1], 1)
    rows = [Verified(0, 7, 0, 3, 1), Verified(0, 0, 3, 0, 0), last]
    Verify(tables, plain_pools(tables), 300, rows, tokens=list(range(9)), hidden=hidden).assert_equal(got)
    assert ascend_sim.take_errors() == [[12, fault, 1, value, 0, 0, 0, 0]]


# Samples of the middle row of three, its drafts and length; fault, value
BAD_SAMPLES = [
    (([1, 2, 3], 1, 9), BAD_ACCEPTED, 3),
    (([1, -1, -1], 3, 9), BAD_DRAFTS, 3),
    (([1, -1, -1], -1, 9), BAD_DRAFTS, -1),
    (([1, -1, -1], 2, 2), BAD_TOKENS, 6),
    (([1, -1, -1], 2, 301), BEYOND_CONTEXT, 301),
]


@pytest.mark.device_only
@pytest.mark.parametrize("blocks", [1, 7])
@pytest.mark.parametrize("row, fault, value", BAD_SAMPLES)
def test_bad_samples_are_padding_and_reported(ascend_sim, blocks, row, fault, value):
    samples, drafts, length = row
    tables = make_tables()
    rows = [Verified(0, 7, 0, 3, [4, -1, -1], 2), Verified(0, 0, 3, 3, [-1] * 3, 0), Verified(2, 9, 6, 3, [5, 6, 7], 2)]
    want = Verify(tables, plain_pools(tables), 300, rows, "drafts", final=True)
    arguments, keywords = want.arguments("cpu")
    arguments[1][1], arguments[2][1], arguments[4][1] = 1, length, torch.tensor(samples)
    keywords["num_draft_tokens"][1] = drafts
    ascend_sim.force_blocks(blocks)
    got = advance_step(*arguments, **keywords)
    ascend_sim.force_blocks(0)
    want.assert_equal(got)
    assert ascend_sim.take_errors() == [[12, fault, 1, value, 0, 0, 0, 0]]


@pytest.mark.device_only
def test_more_samples_than_a_core_holds(ascend_sim):
    with pytest.raises(ValueError, match="token_ids has 2049 columns, expected at most 2048 on a device"):
        advance_step(make_tables(), None, int32(5), None, torch.zeros(1, 2049, dtype=torch.int64))

"""What a verify leaves for the next step, against its oracle: accepted lengths and samples, any tables, in place."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ops.advance_inputs import MODES, Verify, verifies
from ops.step_inputs import filled_tables, plain_pools
from reference.advance_step import Verified

from dsv4_npu_ops import AdvancedStep, KVLayout, PageTable, RequestTables, advance_step


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data())
def test_new_outputs_equal_the_oracle(device, mode, data):
    step = data.draw(verifies(device, mode))
    arguments, keywords = step.arguments(device)
    got = advance_step(*arguments, **keywords)
    assert (got.valid_counts is None) == (got.rejected_lens is None) == (mode == "accepted")
    step.assert_equal(got)


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data())
def test_any_buffers_are_overwritten_and_lengths_change_in_place(device, mode, data):
    step = data.draw(verifies(device, mode))
    arguments, keywords = step.arguments(device)
    out = step.poisoned(device, arguments[2] if data.draw(st.booleans()) else None)
    names = [field.name for field in dataclasses.fields(out) if field.name != "hidden_states"]
    for name in data.draw(st.one_of(st.just([]), st.lists(st.sampled_from(names), unique=True))):
        setattr(out, name, None)
    assert advance_step(*arguments, **keywords, out=out) is out
    step.assert_equal(out)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("rows, elems", [(3, 40_000), (70, 1_000), (600, 3), (1, 33), (9, 32_768), (600, 17)])
def test_rows_of_any_size(device, rows, elems, in_place):
    """More rows than a block reads at a time, and hidden rows longer than a tile."""
    layout = KVLayout(16, 20, rows, 600, {"full": 4, "swa": 4}, device=device)
    tables, generator = filled_tables(layout, 3, device), torch.Generator().manual_seed(rows)
    accepted = [(3 * i) % 3 + (i % 5 != 4) for i in range(rows)]
    lengths = [0 if i % 7 == 3 else 5 + i % 500 for i in range(rows)]
    step = Verify(
        tables,
        plain_pools(tables),
        600,
        [Verified(i, lengths[i], 2 * i, 2, accepted[i]) for i in range(rows)],
        tokens=list(range(100, 100 + 2 * rows)),
        hidden=torch.randn(2 * rows, elems, generator=generator).bfloat16(),
        dtypes=(torch.int64, torch.int32, torch.int32, torch.int64),
    )
    arguments, keywords = step.arguments(device)
    out = step.poisoned(device, arguments[2] if in_place else None)
    hidden, want = out.hidden_states, torch.tensor(step.expect()["hidden_states"])
    advance_step(*arguments, **keywords, out=out)
    assert torch.equal(hidden.float(), want)
    out.hidden_states = None
    step.assert_equal(out)


@pytest.mark.parametrize("columns, dtype", [(4, torch.int32), (9, torch.int64), (700, torch.int64)])
def test_samples_of_many_rows(device, columns, dtype):
    """More samples than a block reads at a time."""
    rows = 520
    layout = KVLayout(16, 20, rows, 2000, {"swa": 4}, device=device)
    tables = filled_tables(layout, 3, device)
    counts = [i % (columns + 1) for i in range(rows)]
    step = Verify(
        tables,
        plain_pools(tables),
        2000,
        [
            Verified(i, 5 + i, columns * i, columns, [1000 * i + j if j < counts[i] else -1 for j in range(columns)])
            for i in range(rows)
        ],
        "samples",
        indexed=False,
        dtypes=(torch.int64, torch.int32, torch.int32, dtype),
    )
    arguments, keywords = step.arguments(device)
    step.assert_equal(advance_step(*arguments, **keywords))


def test_samples_that_end_with_the_first_negative_one(device):
    """Case 33: a row without a sample takes its backup token; all have L = 5 and three inputs."""
    layout = KVLayout(16, 20, 3, 300, {"full": 20, "swa": 20}, device=device)
    tables = filled_tables(layout, 1, device)
    tables.pools["swa"].table[:, 0] = torch.tensor([3, 0, 8], dtype=torch.int32, device=device)
    samples = torch.tensor([[7, 8, -1], [9, -1, -1], [-1, -1, -1]], device=device)
    got = advance_step(
        tables,
        None,
        torch.tensor([5, 5, 5], device=device),
        None,
        samples,
        backup_tokens=torch.tensor([5, 6, 4], device=device),
        dummy_slots=(0, -1),
    )
    assert got.valid_counts.tolist() == [2, 1, 0]
    assert got.token_ids.tolist() == [8, 9, 4]
    assert got.seq_lens.tolist() == [7, 6, 5]
    assert got.positions.tolist() == [7, 6, 0]
    assert got.out_swa_loc.tolist() == [3 * 16 + 7, -1, -1]
    assert got.sampled_index.tolist() == [1, 3, 0]


def test_a_mixed_batch_of_an_engine_with_final_lengths(device):
    """A first chunk, the end of a prompt, a decode, a verify, a discarded chunk, padding; the offsets end at T = 16."""
    block_table = torch.arange(1, 13, dtype=torch.int32, device=device).reshape(6, 2)
    tables = RequestTables.of({"swa": PageTable(block_table, 128)}, max_context_len=256)
    lengths = torch.tensor([4, 130, 256, 11, 6, 0], dtype=torch.int32, device=device)
    got = advance_step(
        tables,
        None,
        lengths,
        None,
        torch.tensor([[40, -1, -1], [41, -1, -1], [42, -1, -1], [43, 44, -1], [-1] * 3, [-1] * 3], device=device),
        num_draft_tokens=torch.tensor([0, 0, 0, 2, 0, 0], device=device),
        cu_seqlens=torch.tensor([0, 4, 6, 7, 10, 15, 16], dtype=torch.int32, device=device),
        backup_tokens=torch.tensor([90, 91, 92, 93, 94, 95], device=device),
        lengths_are_final=True,
        dummy_slots=(0, -1),
    )
    assert got.seq_lens.tolist() == [4, 130, 256, 10, 6, 0]
    assert got.extend_lens.tolist() == [4, 2, 1, 2, 5, 0]
    assert got.rejected_lens.tolist() == [0, 0, 0, 1, 0, 0]
    assert got.valid_counts.tolist() == [1, 1, 1, 2, 0, 0]
    assert got.token_ids.tolist() == [40, 41, 42, 44, 94, 0]
    assert got.positions.tolist() == [4, 130, 0, 10, 6, 0]
    assert got.out_swa_loc.tolist() == [128 + 4, 4 * 128 + 2, -1, 7 * 128 + 10, 9 * 128 + 6, -1]
    assert got.sampled_index.tolist() == [3, 5, 6, 8, 14, 0]
    assert got.out_full_loc.tolist() == []


def test_the_example_of_the_readme(device):
    layout = KVLayout(16, 20, 3, 300, {"full": 20, "swa": 20}, device=device)
    tables = filled_tables(layout, 1, device)
    tables.pools["full"].table[2, 0] = 5
    arguments = [torch.tensor(values, device=device) for values in ([2, 0, 0], [5, 0, 297], [2, 1, 3])]
    tokens = torch.tensor([[11, 12, 13], [0, 0, 0], [21, 22, 23]], device=device)
    hidden = torch.arange(9.0, device=device)[:, None] + 1
    got = advance_step(tables, *arguments, tokens, hidden_states=hidden)
    assert got.seq_lens.tolist() == [7, 0, 300]
    assert got.extend_lens.tolist() == [2, 0, 3]
    assert got.token_ids.tolist() == [12, 0, 23]
    assert got.positions.tolist() == [7, 0, 0]
    assert got.out_full_loc.tolist() == [87, 0, 0]
    assert got.sampled_index.tolist() == [1, 0, 8]
    assert got.hidden_states.flatten().tolist() == [2, 0, 9]


def test_a_row_without_a_token_among_no_tokens_at_all(device):
    """Hidden states of no token still say how wide the row of zeros is."""
    layout = KVLayout(16, 20, 2, 40, {"full": 4}, device=device)
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
    outputs = [tensor for field in dataclasses.fields(got) if (tensor := getattr(got, field.name)) is not None]
    assert launch["mte3_bytes"] == sum(tensor.numel() * tensor.element_size() for tensor in outputs)
    assert launch["mte2_bytes"] <= 1.05 * launch["mte3_bytes"]
    assert launch["balance"]["most_bytes"] <= 1.1 * launch["balance"]["least_bytes"]


def test_buffers_of_other_sizes_than_the_batch():
    with pytest.raises(ValueError, match=r"AdvancedStep\.empty: num_rows is -1, expected at least 0"):
        AdvancedStep.empty(KVLayout(16, 20, 2, 40, {"full": 4}), -1)
    with pytest.raises(ValueError, match=r"AdvancedStep\.empty: seq_lens has shape \[3\], expected \[2\]"):
        AdvancedStep.empty(KVLayout(16, 20, 2, 40, {"full": 4}), 2, seq_lens=torch.zeros(3))

"""What is said of samples alone, in new tensors, against the oracle of a whole step."""

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from ops.any_tables import INTEGERS
from reference.advance_step import Verified
from reference.advance_step import advance_step as oracle

samples_of = torch.ops.dsv4_npu_ops.advance_step.samples
FIELDS = ("token_ids", "valid_counts", "sampled_index", "rejected_lens")


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def assert_as(want, got, dtype):
    assert [tensor.dtype for tensor in got] == [dtype, torch.int32, torch.int64, torch.int32]
    for name, tensor in zip(FIELDS, got, strict=True):
        assert tensor.tolist() == want[name], name


@st.composite
def batches(draw):
    """Chunks, decodes and verifies of a mixed step, whose lengths count its tokens; padding among them."""
    width, rows, first = draw(st.integers(1, 6)), [], 0
    for _ in range(draw(st.integers(0, 40))):
        drafts = draw(st.integers(0, width - 1))
        tokens = drafts + 1 if drafts else draw(st.integers(1, 30))
        count = draw(st.integers(0, drafts + 1))
        samples = [draw(st.integers(0, 9)) for _ in range(count)] + [-1] * (width - count)
        length = draw(st.sampled_from([0, tokens, tokens + draw(st.integers(0, 500))]))
        rows.append(Verified(0, length, first, tokens, samples, drafts, draw(st.integers(0, 9))))
        first += tokens
    return width, rows


@given(batch=batches(), has_backups=st.booleans(), dtypes=st.tuples(*[st.sampled_from(INTEGERS)] * 3))
def test_rounds_whose_lengths_are_final_equal_the_oracle(device, batch, has_backups, dtypes):
    width, rows = batch
    for row in rows:
        row.backup = row.backup if has_backups else 0
    ends = [row.first + row.width for row in rows]
    got = samples_of(
        torch.tensor([row.seq_len for row in rows], dtype=dtypes[0]),
        torch.tensor([row.judged for row in rows], dtype=dtypes[1]).view(len(rows), width),
        int32(0, *ends),
        torch.tensor([row.drafts for row in rows], dtype=dtypes[2]),
        torch.tensor([row.backup for row in rows], dtype=dtypes[1]) if has_backups else None,
        600,
        True,
    )
    assert_as(oracle({}, rows, 600, final=True), got, dtypes[1])


def test_samples_without_a_round(device):
    """As many inputs a row as there are samples."""
    got = samples_of(int32(1, 0, 5), torch.tensor([[7, 8, -1], [9, 9, 9], [-1, 4, 4]]), None, None, None, 100)
    assert [tensor.tolist() for tensor in got] == [[8, 0, 0], [2, 0, 0], [1, 0, 0], [1, 0, 0]]


def test_the_mixed_batch_of_the_readme(device):
    samples = torch.tensor([[40, -1, -1], [41, -1, -1], [43, 44, -1], [-1, -1, -1]])
    backups = torch.tensor([90, 91, 92, 93])
    got = samples_of(int32(4, 130, 11, 6), samples, int32(0, 4, 5, 8, 13), int32(0, 0, 2, 0), backups, 300, True)
    assert [tensor.tolist() for tensor in got] == [[40, 41, 44, 93], [1, 1, 2, 0], [3, 4, 6, 12], [0, 0, 1, 0]]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((torch.zeros(2), torch.zeros(2, 3).long(), None, None, None, 9), "seq_lens has dtype Float, expected Int or"),
        ((torch.tensor(3), torch.zeros(2, 3).long(), None, None, None, 9), "seq_lens has shape [], expected 1 dim"),
        ((int32(1, 2), int32(1, 2), None, None, None, 9), "token_ids has shape [2], expected 2 dimensions"),
        ((int32(1, 2), torch.zeros(2, 3), None, None, None, 9), "token_ids has dtype Float, expected Int or Long"),
        ((int32(1, 2), torch.zeros(3, 3).long(), None, None, None, 9), "token_ids has shape [3, 3], expected [2, 3]"),
        ((int32(1, 2), torch.zeros(2, 3).long(), int32(0), None, None, 9), "cu_seqlens has shape [1], expected [3]"),
        ((int32(1, 2), torch.zeros(2, 3).long(), None, None, int32(1, 2), 9), "backup_tokens has dtype Int, expected"),
        ((int32(1, 2), torch.zeros(2, 3).long(), None, None, None, 0), "max_context_len is 0, expected at least 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_calls_raise(arguments, message):
    with pytest.raises(ValueError) as error:
        samples_of(*arguments)
    assert f"advance_step: {message}" in str(error.value)


@pytest.mark.one_variant
def test_opcheck(device):
    opcheck(samples_of, (int32(4, 5), int32(1, -1, 2, 3).view(2, 2), int32(0, 2, 4), None, None, 9, True), {})

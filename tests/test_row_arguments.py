"""Arguments that every description of a step takes: what is wrong is named, whatever the wrapper."""

import pytest
import torch

import dsv4_npu_ops as d

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
TABLES = d.RequestTables(d.KVLayout(page_size=16, max_context_len=256, num_pages=dict.fromkeys(POOLS, 4)))
ROWS = torch.tensor([0, 1])
LENGTHS = torch.tensor([5, 6])
COS = torch.ones(256, 4)

STEPS = {
    "prefill": lambda rows, lens: d.build_compress_metadata_prefill(TABLES, rows, torch.zeros(2).long(), lens),
    "decode": lambda rows, lens: d.build_compress_metadata_decode(TABLES, rows, lens),
    "verify": lambda rows, lens: d.build_compress_metadata_verify(TABLES, rows, lens, 2),
    "ragged": lambda rows, lens: d.build_compress_metadata_verify(TABLES, rows, lens, torch.tensor([1, 2])),
    "bundle": lambda rows, lens: d.flatten_verify_bundle(TABLES, rows, lens, 2),
    "verify_step": lambda rows, lens: d.build_verify_step(TABLES, rows, lens, 2, COS, COS),
    "step": lambda rows, lens: d.build_step(TABLES, d.StepRows.final(lens), d.Step(), req_pool_indices=rows),
    "mixed": lambda rows, lens: d.build_step(
        TABLES, d.StepRows.mixed(torch.arange(3), lens), d.Step(), req_pool_indices=rows
    ),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize(
    "lengths, message",
    [
        (torch.tensor(5), r"seq_lens has shape \[\], expected 1 dimension"),
        (torch.tensor([5.0, 6.0]), "seq_lens has dtype Float, expected Int or Long"),
        (torch.tensor([True, False]), "seq_lens has dtype Bool, expected Int or Long"),
        (torch.zeros(2, 1, dtype=torch.int64), r"seq_lens has shape \[2, 1\], expected 1 dimension"),
        ([5, 6], r"seq_lens is \[5, 6\], expected a tensor"),
        (None, "seq_lens is None, expected a tensor"),
        (torch.tensor([5, 0, 6, 0])[::2], r"seq_lens has strides \[2\]"),
    ],
    ids=str,
)
def test_wrong_lengths(step, lengths, message):
    with pytest.raises(ValueError, match=message):
        step(ROWS, lengths)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_wrong_request_indices(step):
    with pytest.raises(ValueError, match="req_pool_indices has dtype Float, expected Int or Long"):
        step(ROWS.float(), LENGTHS)


@pytest.mark.parametrize("drafts", [None, "2", [2], 2.5])
def test_wrong_draft_tokens(drafts):
    message = "num_draft_tokens is .*, expected an integer or a tensor"
    with pytest.raises(ValueError, match=f"^build_compress_metadata_verify: {message}"):
        d.build_compress_metadata_verify(TABLES, ROWS, LENGTHS, drafts)
    with pytest.raises(ValueError, match=f"^flatten_verify_bundle: {message}"):
        d.flatten_verify_bundle(TABLES, ROWS, LENGTHS, drafts)
    with pytest.raises(ValueError, match=f"^build_verify_step: {message}"):
        d.build_verify_step(TABLES, ROWS, LENGTHS, drafts, COS, COS)
    with pytest.raises(ValueError, match=f"^StepRows.verify: {message}"):
        d.StepRows.verify(LENGTHS, drafts)


def test_dtypes_of_new_rope_rows_and_tables():
    with pytest.raises(ValueError, match="rope_gather: dtype is Double, expected Float or Half or BFloat16"):
        d.rope_gather(COS, COS, ROWS, dtype=torch.float64)
    with pytest.raises(ValueError, match="build_rope_tables: dtype is Int, expected Float or Half or BFloat16"):
        d.build_rope_tables(torch.ones(4, 2, dtype=torch.complex64), torch.int32)

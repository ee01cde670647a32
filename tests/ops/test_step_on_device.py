"""What only a simulated device shows of the ops that describe a step: bad values, large steps, traffic."""

import pytest
import torch
from ops.step_inputs import POOLS, Step, as_lists, filled_tables
from ops.test_compress_metadata import assert_equal, build, expect, page_widths
from ops.test_verify_step import assert_equal as assert_step_equal
from ops.test_verify_step import expect as expect_step
from ops.test_verify_step import fields_of, poisoned, rope_tables
from ops.test_verify_step import page_widths as step_page_widths
from reference.verify_bundle import verify_bundle

import dsv4_npu_ops
from dsv4_npu_ops import build_verify_step, flatten_verify_bundle

pytestmark = pytest.mark.device_only

NEGATIVE_LENGTH, NEGATIVE_OPERAND, PREFIX_BEYOND_LENGTH, BEYOND_CONTEXT = 1, 2, 3, 4
BEYOND_MAX_SEQ_LEN, UNKNOWN_REQUEST, BEYOND_TOKENS, BEYOND_GROUPS, POSITION_OUT_OF_RANGE = 5, 6, 7, 8, 100
COMPRESS_METADATA, VERIFY_BUNDLE, VERIFY_STEP = 2, 3, 4


def make_step(form, requests, lengths, operands=None, width=0, *, page=16, context=300, max_requests=4):
    layout = dsv4_npu_ops.KVLayout(
        page_size=page,
        sliding_window=20,
        max_requests=max_requests,
        max_context_len=context,
        num_pages={pool: 8 for pool in POOLS},
    )
    tables = filled_tables(layout, 0, "cpu")
    operands = operands or [0] * len(requests)
    dtypes = (torch.int64, torch.int64, torch.int64)
    return Step(form, layout, tables, as_lists(tables), requests, lengths, operands, width, dtypes)


# form, width, the middle row (request, length, operand), fault, value; the padding that it becomes (length, operand)
BAD_ROWS = [
    ("verify", 2, (9, 8, 0), UNKNOWN_REQUEST, 9, (0, 0)),
    ("verify", 2, (-1, 8, 0), UNKNOWN_REQUEST, -1, (0, 0)),
    ("verify", 2, (1, -8, 0), NEGATIVE_LENGTH, -8, (0, 0)),
    ("verify", 2, (1, 299, 0), BEYOND_CONTEXT, 299, (0, 0)),
    ("verify", 2, (1, 2**62, 0), BEYOND_CONTEXT, 0, (0, 0)),
    ("verify", 2, (1, 199, 0), BEYOND_MAX_SEQ_LEN, 199, (0, 0)),
    ("ragged", 0, (1, 8, -3), NEGATIVE_OPERAND, -3, (0, 0)),
    ("ragged", 0, (7, 8, 3), UNKNOWN_REQUEST, 7, (0, 3)),
    ("ragged", 0, (1, 8, 38), BEYOND_TOKENS, 8, (0, 0)),
    ("ragged", 0, (1, 0, 2**40), BEYOND_TOKENS, 0, (0, 0)),
    ("prefill", 0, (1, 5, 6), PREFIX_BEYOND_LENGTH, 5, (6, 6)),
    ("prefill", 0, (1, 5, -6), NEGATIVE_OPERAND, -6, (6, 6)),
    ("prefill", 0, (1, -(2**63), 2), NEGATIVE_LENGTH, 0, (6, 6)),
    ("decode", 0, (4, 5, 0), UNKNOWN_REQUEST, 4, (0, 0)),
]


def with_middle_row(form, width, request, length, operand):
    others = dict(prefill=1, ragged=3).get(form, 0)
    return make_step(form, [0, request, 2], [7, length, 9], [others, operand, others], width)


@pytest.mark.parametrize("blocks", [1, 7])
@pytest.mark.parametrize("form, width, row, fault, value, padding", BAD_ROWS)
def test_a_bad_row_is_padding_and_reported(ascend_sim, blocks, form, width, row, fault, value, padding):
    step = with_middle_row(form, width, *row)
    want = with_middle_row(form, width, 0, *padding)
    tokens = 3 if form == "decode" else 40
    ascend_sim.force_blocks(blocks)
    got = build(step, "cpu", num_tokens=tokens, max_seq_len=200)
    ascend_sim.force_blocks(0)
    assert_equal(got, expect(want, num_tokens=tokens, columns=page_widths(step.layout, 200)))
    assert ascend_sim.take_errors() == [[COMPRESS_METADATA, fault, 1, value, 0, 0, 0, 0]]


def test_a_row_with_more_groups_than_fit_is_padding(ascend_sim):
    step = make_step("verify", [0, 1, 2, 3], [3, 7, 11, 15], width=1)
    out = dsv4_npu_ops.OutCacheLoc.empty(step.layout, 4, 4)
    out.out_c4_loc = torch.full((2,), -77, dtype=torch.int32)
    requests, lengths, _ = step.tensors("cpu")
    flatten_verify_bundle(step.tables, requests, lengths, 1, out=out)
    want = verify_bundle(step.rows, [0, 1, 0, 0], [3, 7, 0, 0], [1] * 4, capacities=dict(c4=2, c128=4))
    assert {name: getattr(out, name).tolist() for name in want} == want
    # The first bad row is the one to tell of.
    assert ascend_sim.take_errors() == [[VERIFY_BUNDLE, BEYOND_GROUPS, 2, 11, 0, 0, 0, 0]]


GROUP_OUTPUTS = [
    ("out_c4_loc",),
    ("out_c128_loc",),
    ("positions_c4", "c4_loc", "c4_cos", "c4_sin"),
    ("positions_c128", "c128_loc", "c128_cos", "c128_sin"),
]


@pytest.mark.parametrize("short", GROUP_OUTPUTS)
def test_a_row_with_more_groups_than_one_output_of_a_verify_step_is_padding(ascend_sim, short):
    step = make_step("verify", [0, 1, 2], [127, 255, 127], width=1)
    cos, sin = rope_tables(300, 4, "cpu")
    out = poisoned(step.layout, 3, 3, 4)
    for owner in (out, out.out_cache_loc, out.metadata):
        for name in short:
            if hasattr(owner, name):
                setattr(owner, name, getattr(owner, name)[:2])
    requests, lengths, _ = step.tensors("cpu")
    build_verify_step(step.tables, requests, lengths, 1, cos, sin, out=out)
    padded = make_step("verify", [0, 1, 0], [127, 255, 0], width=1)
    want = expect_step(padded, cos, sin, step_page_widths(step.layout, 300))
    assert_step_equal(out, want | {name: want[name][:2] for name in short})
    assert ascend_sim.take_errors() == [[VERIFY_STEP, BEYOND_GROUPS, 2, 127, 0, 0, 0, 0]]


def test_a_row_with_more_pages_than_fit_is_padding(ascend_sim):
    step = make_step("decode", [0, 1], [32, 33])
    out = dsv4_npu_ops.CompressMetadata.empty(step.layout, 2, 2, 32)
    build(step, "cpu", out=out)
    want = make_step("decode", [0, 1], [32, 0])
    assert_equal(out, expect(want, columns=page_widths(step.layout, 32)))
    assert ascend_sim.take_errors() == [[COMPRESS_METADATA, BEYOND_MAX_SEQ_LEN, 1, 33, 0, 0, 0, 0]]


@pytest.mark.parametrize("blocks", [1, 7])
def test_rope_rows_past_the_table_are_nan(ascend_sim, blocks):
    step = make_step("verify", [0, 1, 2], [6, 122, 2], width=9)
    cos, sin = rope_tables(122, 5, "cpu")
    requests, lengths, _ = step.tensors("cpu")
    ascend_sim.force_blocks(blocks)
    got = build_verify_step(step.tables, requests, lengths, 9, cos, sin)
    ascend_sim.force_blocks(0)
    positions = [4, 8, 120, 124, 0, 4, 0, 0, 0]
    assert got.metadata.positions_c4.tolist() == positions
    for table, rows in ((cos, got.c4_cos), (sin, got.c4_sin)):
        want = torch.stack([table[p] if p < 122 else torch.full((5,), torch.nan) for p in positions])
        torch.testing.assert_close(rows, want, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got.c128_cos, cos[:1].expand(3, -1))
    assert ascend_sim.take_errors() == [[VERIFY_STEP, POSITION_OUT_OF_RANGE, 3, 124, 0, 0, 0, 0]]


@pytest.mark.parametrize("blocks, dim", [(0, 64), (1, 128)])
@pytest.mark.simulated_only
def test_large_verify_step(ascend_sim, blocks, dim):
    """B=64, context 8192, n=4, page 128: equal to the oracle, and close to the bytes that must move."""
    rows, context, width = 64, 8192, 4
    lengths = [(i * 997 + 4000) % (context - width) for i in range(rows)]
    lengths[5] = 0
    step = make_step("verify", list(range(rows)), lengths, None, width, page=128, context=context, max_requests=rows)
    cos, sin = rope_tables(context, dim, "cpu")
    requests, lens, _ = step.tensors("cpu")
    ascend_sim.force_blocks(blocks)
    got = build_verify_step(step.tables, requests, lens, width, cos, sin)
    ascend_sim.force_blocks(0)
    assert_step_equal(got, expect_step(step, cos, sin, step_page_widths(step.layout, context)))
    assert ascend_sim.take_errors() == []
    (launch,) = ascend_sim.take_counters()
    assert launch["kernel"] == "verify_step"
    outputs = fields_of(got).values()
    assert launch["mte3_bytes"] == sum(tensor.numel() * tensor.element_size() for tensor in outputs)
    # Slots, and the rows of RoPE tables that belong to groups; what every block reads of the lengths counts apart.
    inputs = launch["mte2_bytes"] - launch["blocks"] * rows * 2 * 8
    assert launch["mte3_bytes"] + inputs <= 1.25 * 2 * launch["mte3_bytes"]


@pytest.mark.parametrize("page, context", [(1, 3000), (2, 5000)])
def test_page_tables_wider_than_a_tile(ascend_sim, page, context):
    step = make_step("decode", [0, 1, 2], [context, 0, context - 900], page=page, context=context)
    got = build(step, "cpu")
    assert_equal(got, expect(step, columns=page_widths(step.layout, context)))
    assert ascend_sim.take_errors() == []


@pytest.mark.parametrize("blocks", [0, 1])
def test_prefill_of_several_tiles(ascend_sim, blocks):
    step = make_step("prefill", [0, 1, 2, 3], [11000, 2600, 7, 9001], [3, 100, 7, 2], page=64, context=11000)
    ascend_sim.force_blocks(blocks)
    got = build(step, "cpu")
    ascend_sim.force_blocks(0)
    assert_equal(got, expect(step, columns=page_widths(step.layout, 11000)))
    assert ascend_sim.take_errors() == []


@pytest.mark.parametrize("form", ["verify", "ragged"])
def test_bundle_of_several_tiles(ascend_sim, form):
    rows = 600
    widths = [8] * rows if form == "verify" else [i % 9 for i in range(rows)]
    step = make_step(form, [i % 4 for i in range(rows)], [i % 250 for i in range(rows)], widths, 8)
    requests, lengths, _ = step.tensors("cpu")
    ascend_sim.force_blocks(1)
    got = flatten_verify_bundle(step.tables, requests, lengths, step.num_draft_tokens("cpu"))
    ascend_sim.force_blocks(0)
    want = verify_bundle(step.rows, step.requests, step.lengths, widths)
    assert {name: getattr(got, name).tolist() for name in want} == want
    assert ascend_sim.take_errors() == []


def test_as_many_rows_as_a_device_takes(ascend_sim):
    rows = 4096
    step = make_step("ragged", [3] * rows, [i % 200 for i in range(rows)], [i % 3 for i in range(rows)], context=210)
    got = build(step, "cpu", max_seq_len=210)
    assert_equal(got, expect(step, columns=page_widths(step.layout, 210)))
    assert ascend_sim.take_errors() == []


def test_more_rows_than_a_device_takes():
    step = make_step("decode", [0] * 4097, [1] * 4097)
    with pytest.raises(ValueError, match="req_pool_indices has 4097 entries, expected at most 4096 on a device"):
        build(step, "cpu")


def test_host_numbers_that_do_not_fit():
    step = make_step("verify", [0, 1], [5, 6], width=4)
    with pytest.raises(ValueError, match=r"num_tokens is 7 .*, expected at least 4 for each of 2 rows"):
        build(step, "cpu", num_tokens=7)

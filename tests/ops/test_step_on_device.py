"""What only a simulated device shows of the ops that describe a step: bad values, large steps, traffic."""

import pytest
import torch
from ops.step_inputs import Step, filled_tables, plain_pools
from ops.test_step_wrappers import assert_equal, build_bundle, build_metadata, expect, poisoned, rope_tables, tensors_of
from reference.step import POOLS

import dsv4_npu_ops
from dsv4_npu_ops import (
    CompressMetadata,
    OutCacheLoc,
    PageTable,
    RequestTables,
    SlotTable,
    StepRows,
    VerifyStep,
    build_step,
    build_verify_step,
    flatten_verify_bundle,
)

pytestmark = pytest.mark.device_only

NEGATIVE_LENGTH, NEGATIVE_OPERAND, SHORTER_THAN_OPERAND, BEYOND_CONTEXT = 1, 2, 3, 4
BEYOND_PAGE_TABLES, UNKNOWN_REQUEST, BEYOND_TOKENS, BEYOND_GROUPS, BEYOND_RING, BEYOND_COLUMNS = 5, 6, 7, 8, 9, 10
POSITION_OUT_OF_RANGE, STEP = 100, 4


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
    return Step(form, layout, tables, plain_pools(tables), requests, lengths, operands, width, dtypes)


# form, width, the middle row (request, length, operand), fault, value; the padding that it becomes (length, operand)
BAD_ROWS = [
    ("verify", 2, (9, 8, 0), UNKNOWN_REQUEST, 9, (0, 0)),
    ("verify", 2, (-1, 8, 0), UNKNOWN_REQUEST, -1, (0, 0)),
    ("verify", 2, (1, -8, 0), NEGATIVE_LENGTH, -8, (0, 0)),
    ("verify", 2, (1, 299, 0), BEYOND_CONTEXT, 299, (0, 0)),
    ("verify", 2, (1, 2**62, 0), BEYOND_CONTEXT, 0, (0, 0)),
    ("verify", 2, (1, 207, 0), BEYOND_PAGE_TABLES, 207, (0, 0)),
    ("ragged", 0, (1, 8, -3), NEGATIVE_OPERAND, -3, (0, 0)),
    ("ragged", 0, (7, 8, 3), UNKNOWN_REQUEST, 7, (0, 3)),
    ("ragged", 0, (1, 8, 38), BEYOND_TOKENS, 8, (0, 0)),
    ("ragged", 0, (1, 0, 2**40), BEYOND_TOKENS, 0, (0, 0)),
    ("prefill", 0, (1, 5, 6), SHORTER_THAN_OPERAND, 5, (6, 6)),
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
    got = build_metadata(step, "cpu", num_tokens=tokens, max_seq_len=200)
    ascend_sim.force_blocks(0)
    assert_equal(got, expect(want, num_tokens=tokens, length=200))
    assert ascend_sim.take_errors() == [[STEP, fault, 1, value, 0, 0, 0, 0]]


# rows of a form, the middle one of which is bad, and what they are with padding there; fault, value
BAD_FORMS: list[tuple] = [
    (StepRows.final, ([7, 2, 9], 3), ([7, 0, 9], 3), SHORTER_THAN_OPERAND, 2),
    (StepRows.final, ([7, 5, 9], [3, 6, 3]), ([7, 0, 9], [3, 6, 3]), SHORTER_THAN_OPERAND, 5),
    (StepRows.final, ([7, 5, 9], [3, -6, 3]), ([7, 5, 9], [3, 0, 3]), NEGATIVE_OPERAND, -6),
    (StepRows.mixed, ([0, 3, 9, 12], [7, 5, 9]), ([0, 3, 9, 12], [7, 0, 9]), SHORTER_THAN_OPERAND, 5),
    (StepRows.mixed, ([0, 3, 9, 12], [7, 301, 9]), ([0, 3, 9, 12], [7, 0, 9]), BEYOND_CONTEXT, 301),
]


@pytest.mark.parametrize("blocks", [1, 7])
@pytest.mark.parametrize("form, bad, padded, fault, value", BAD_FORMS)
def test_a_bad_row_of_a_final_form_is_padding_and_reported(ascend_sim, blocks, form, bad, padded, fault, value):
    tables, outs = make_step("decode", [], []).tables, []
    for operands in (bad, padded):
        out = dsv4_npu_ops.Step(start_pos=torch.full((3,), -77, dtype=torch.int32), seqused=torch.zeros(3).int(),
                                out_swa_loc=torch.full((20,), -77), positions=torch.full((20,), -77))  # fmt: skip
        rows = form(*(torch.tensor(values) if isinstance(values, list) else values for values in operands))
        ascend_sim.force_blocks(blocks)
        build_step(tables, rows, out)
        ascend_sim.force_blocks(0)
        outs.append(out)
    for name in ("start_pos", "seqused", "out_swa_loc", "positions"):
        assert torch.equal(getattr(outs[0], name), getattr(outs[1], name)), name
    assert ascend_sim.take_errors() == [[STEP, fault, 1, value, 0, 0, 0, 0]]


# V scans rows if all are good: these are, or look so once numbers are cut off at what a good row may have.
SCANS: list[tuple] = [
    (StepRows.verify, ([0, 5], [400, 3]), [0, 5], [0, 3], [0, 400, 403], []),
    (StepRows.prefill, ([1, 350, 3], [7, 400, 9]), [1, 0, 3], [6, 0, 6], [0, 6, 56, 62], [[1, BEYOND_CONTEXT, 400]]),
    (StepRows.prefill, ([1, 1 << 30, 3], [7, 1 << 30, 9]), [1, 0, 3], [6, 0, 6], [0, 6, 6, 12], []),
    (StepRows.verify, ([7, 299, 2], 1), [7, 299, 2], [1, 1, 1], [0, 1, 2, 3], []),
    (StepRows.verify, ([7, 300, 2], 1), [7, 0, 2], [1, 0, 1], [0, 1, 2, 3], [[1, BEYOND_CONTEXT, 300]]),
    (StepRows.verify, ([7, 1 << 33, 2], 1), [7, 0, 2], [1, 0, 1], [0, 1, 2, 3], [[1, BEYOND_CONTEXT, 0]]),
]


@pytest.mark.parametrize("blocks", [1, 7])
@pytest.mark.parametrize("form, operands, starts, counts, offsets, faults", SCANS)
def test_a_scan_of_rows_by_v_finds_what_s_finds(ascend_sim, blocks, form, operands, starts, counts, offsets, faults):
    pages = torch.arange(3 * 64, dtype=torch.int32).reshape(3, 64) + 1
    tables = RequestTables.of({"swa": PageTable(pages, 16)}, sliding_window=48, max_context_len=300)
    rows = len(starts)
    out = dsv4_npu_ops.Step(
        **{name: torch.full((rows,), -77, dtype=torch.int32) for name in ("start_pos", "seqused")},
        cu_seqlens=torch.full((rows + 1,), -77, dtype=torch.int32),
    )
    described = form(*(torch.tensor(values) if isinstance(values, list) else values for values in operands))
    ascend_sim.force_blocks(blocks)
    build_step(tables, described, out)
    ascend_sim.force_blocks(0)
    assert (out.start_pos.tolist(), out.seqused.tolist()) == (starts, counts)
    assert out.cu_seqlens.tolist() == offsets
    assert [[row, fault, value] for _, fault, row, value, *_ in ascend_sim.take_errors()] == faults


@pytest.mark.parametrize("rows", [511, 512, 513, 1030])
def test_prefixes_go_on_from_one_chunk_of_rows_to_the_next(ascend_sim, rows):
    starts = torch.arange(rows) % 131
    widths = torch.arange(rows) % 5
    tables = RequestTables.of({"full": PageTable(torch.ones(rows, 64, dtype=torch.int32), 16)}, max_context_len=300)
    out = dsv4_npu_ops.Step(cu_seqlens=torch.full((rows + 1,), -77, dtype=torch.int32),
                            num_groups=torch.full((2,), -77, dtype=torch.int32))  # fmt: skip
    build_step(tables, StepRows.verify(starts, widths), out)
    assert out.cu_seqlens.tolist() == [0, *widths.cumsum(0).tolist()]
    live = starts > 0
    groups = [int((((starts + widths) // ratio - starts // ratio) * live).sum()) for ratio in (4, 128)]
    assert out.num_groups.tolist() == groups


def test_rows_of_more_tokens_than_an_int32_counts(ascend_sim):
    """V leaves them to S, which finds the first row too many."""
    rows, width = 1030, (1 << 21) - 1
    pages = torch.ones(1, 65, dtype=torch.int32)
    tables = RequestTables.of({"full": PageTable(pages, 1 << 15)}, max_context_len=65 << 15)
    out = dsv4_npu_ops.Step(cu_seqlens=poison(rows + 1), seqused=poison(rows))
    described = StepRows.verify(torch.full((rows,), 64), torch.full((rows,), width))
    ascend_sim.force_blocks(1)
    build_step(tables, described, out, req_pool_indices=torch.zeros(rows, dtype=torch.int64))
    ascend_sim.force_blocks(0)
    assert out.seqused.tolist() == [width] * 1024 + [0] * 6
    assert out.cu_seqlens.tolist() == [i * width for i in range(1025)] + [1024 * width] * 6
    assert ascend_sim.take_errors()[0] == [STEP, BEYOND_TOKENS, 1024, 64, 0, 0, 0, 0]


def test_a_row_with_more_live_pages_than_a_ring_has_columns_is_padding(ascend_sim):
    ring = torch.arange(1, 9, dtype=torch.int32).reshape(2, 4)
    tables = RequestTables.of({"swa": PageTable(ring, 16)}, sliding_window=48, max_context_len=300)
    out = dsv4_npu_ops.Step(out_swa_loc=torch.full((20,), -77), swa_page_table=torch.zeros(2, 19).int())
    build_step(tables, StepRows.verify(torch.tensor([90, 100]), torch.tensor([5, 14])), out)
    # Pages 2 to 5 of the first row; the second one would also need page 7 beside 3, which is in the same column.
    assert out.out_swa_loc.tolist() == [*range(2 * 16 + 10, 2 * 16 + 15), *[0] * 15]
    assert out.swa_page_table.tolist() == [[-1, -1, 3, 4, 1, 2, *[-1] * 13], [0, *[-1] * 18]]
    assert ascend_sim.take_errors() == [[STEP, BEYOND_RING, 1, 100, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    "field, columns", [("c4_state_locs", 8 + 3), ("c128_state_locs", 128 + 3), ("window_locs", 23)]
)
def test_a_row_with_more_tokens_than_columns_is_padding(ascend_sim, field, columns):
    step = make_step("ragged", [0, 1], [40, 40], [3, 4])
    out, want = (dsv4_npu_ops.Step(**{field: torch.full((2, columns), -77, dtype=torch.int32)}) for _ in range(2))
    build_step(step.tables, StepRows.verify(torch.tensor([40, 40]), torch.tensor([3, 4])), out)
    build_step(step.tables, StepRows.verify(torch.tensor([40, 0]), torch.tensor([3, 4])), want)
    assert torch.equal(getattr(out, field), getattr(want, field))
    assert ascend_sim.take_errors() == [[STEP, BEYOND_COLUMNS, 1, 40, 0, 0, 0, 0]]


def test_a_row_with_more_groups_than_fit_is_padding(ascend_sim):
    step = make_step("verify", [0, 1, 2, 3], [3, 7, 11, 15], width=1)
    out = OutCacheLoc.empty(step.layout, 4, 4)
    out.out_c4_loc = torch.full((2,), -77, dtype=torch.int32)
    ascend_sim.force_blocks(1)
    build_bundle(step, "cpu", out=out)
    ascend_sim.force_blocks(0)
    assert_equal(out, expect(make_step("verify", [0, 1, 0, 0], [3, 7, 0, 0], width=1), groups=dict(c4=2, c128=4)))
    # The first bad row is the one to tell of; a device with more blocks has another that tells of its own.
    assert ascend_sim.take_errors()[0] == [STEP, BEYOND_GROUPS, 2, 11, 0, 0, 0, 0]


@pytest.mark.parametrize("pool", ["c4", "c128"])
def test_a_row_with_more_groups_than_the_outputs_of_a_verify_step_is_padding(ascend_sim, pool):
    step = make_step("verify", [0, 1, 2], [127, 255, 127], width=1)
    rope = rope_tables(300, 4, "cpu")
    out = poisoned(VerifyStep.empty(step.layout, 3, 3, 4))
    short = (f"positions_{pool}", f"{pool}_loc", f"{pool}_cos", f"{pool}_sin")
    for owner in (out, out.metadata):
        for name in short:
            if hasattr(owner, name):
                setattr(owner, name, getattr(owner, name)[:2])
    setattr(out.out_cache_loc, f"out_{pool}_loc", getattr(out.metadata, f"{pool}_loc"))
    short = (*short, f"out_{pool}_loc")
    requests, lengths, _ = step.tensors("cpu")
    build_verify_step(step.tables, requests, lengths, 1, *rope, out=out)
    want = expect(make_step("verify", [0, 1, 0], [127, 255, 0], width=1), rope=rope)
    assert_equal(out, want | {name: want[name][:2] for name in short})
    assert ascend_sim.take_errors() == [[STEP, BEYOND_GROUPS, 2, 127, 0, 0, 0, 0]]


def test_a_row_with_more_pages_than_fit_is_padding(ascend_sim):
    step = make_step("decode", [0, 1], [32, 33])
    out = CompressMetadata.empty(step.layout, 2, 2, 32)
    build_metadata(step, "cpu", out=out)
    assert_equal(out, expect(make_step("decode", [0, 1], [32, 0]), length=32))
    assert ascend_sim.take_errors() == [[STEP, BEYOND_PAGE_TABLES, 1, 33, 0, 0, 0, 0]]


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
    assert ascend_sim.take_errors() == [[STEP, POSITION_OUT_OF_RANGE, 3, 124, 0, 0, 0, 0]]


@pytest.mark.parametrize("blocks", [1, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows_of_tokens_past_their_table_are_nan(ascend_sim, blocks, dtype):
    tables = RequestTables.of({"swa": PageTable(torch.ones(3, 64, dtype=torch.int32), 16)}, max_context_len=300)
    cos, sin = (table.to(dtype) for table in rope_tables(122, 5, "cpu"))
    out = dsv4_npu_ops.Step(main_cos=torch.full((20, 5), -77.0, dtype=dtype), main_sin=torch.zeros(20, 5, dtype=dtype))
    ascend_sim.force_blocks(blocks)
    build_step(tables, StepRows.verify(torch.tensor([117, 0, 200]), 6), out, main_rope=(cos, sin))
    ascend_sim.force_blocks(0)
    for table, rows in ((cos, out.main_cos), (sin, out.main_sin)):
        positions = [*range(117, 123), *[0] * 6, *range(200, 206), 0, 0]
        want = torch.stack([table[p] if p < 122 else torch.full((5,), torch.nan).to(dtype) for p in positions])
        torch.testing.assert_close(rows, want, rtol=0, atol=0, equal_nan=True)
    errors = [error[:4] for error in ascend_sim.take_errors()]
    assert errors[0] == [STEP, POSITION_OUT_OF_RANGE, 5, 122]
    assert all(error[:2] == [STEP, POSITION_OUT_OF_RANGE] for error in errors)


@pytest.mark.parametrize("blocks, dim", [(0, 64), (1, 128)])
@pytest.mark.simulated_only
def test_large_verify_step(ascend_sim, blocks, dim):
    """B=64, context 8192, n=4, page 128: equal to the oracle, and close to the bytes that must move."""
    rows, context, width = 64, 8192, 4
    lengths = [(i * 997 + 4000) % (context - width) for i in range(rows)]
    lengths[5] = 0
    step = make_step("verify", list(range(rows)), lengths, None, width, page=128, context=context, max_requests=rows)
    rope = rope_tables(context, dim, "cpu")
    requests, lens, _ = step.tensors("cpu")
    ascend_sim.force_blocks(blocks)
    got = build_verify_step(step.tables, requests, lens, width, *rope)
    ascend_sim.force_blocks(0)
    assert_equal(got, expect(step, rope=rope))
    assert ascend_sim.take_errors() == []
    (launch,) = ascend_sim.take_counters()
    assert launch["kernel"] == "fill_uniform_step"
    # The slots of groups are in both halves of the result.
    assert launch["mte3_bytes"] == sum(
        {tensor.data_ptr(): tensor.nbytes for tensor in tensors_of(got).values()}.values()
    )
    # Page ids, and the rows of RoPE tables that belong to groups; what every block reads of the lengths counts apart.
    inputs = launch["mte2_bytes"] - launch["blocks"] * rows * 2 * 8
    assert launch["mte3_bytes"] + inputs <= 1.25 * 2 * launch["mte3_bytes"]


def paged_tables(*, dtype=torch.int32, state_page=16, columns=20):
    """Two requests of at most 300 tokens."""
    pages = torch.arange(1, 2 * 20 + 1, dtype=dtype).reshape(2, 20)
    return RequestTables.of(
        {
            "full": PageTable(pages, 16),
            "swa": PageTable(pages[:, :columns], 16),
            "c4_state": PageTable(torch.ones(2, 300 // state_page + 1, dtype=dtype), state_page),
        },
        sliding_window=32,
        max_context_len=300,
    )


def poison(*shape):
    return torch.full(shape, -77, dtype=torch.int32)


VERIFY = StepRows.verify(torch.tensor([40, 7]), 4)
# The kernel, the rows, the tables, and outputs.
CHOICES: list[tuple] = [
    ("fill_uniform_step", VERIFY, {}, {}),
    ("fill_uniform_step", StepRows.final(torch.tensor([40, 7])), {}, dict(out_swa_loc=poison(2))),
    ("fill_uniform_step", StepRows.verify(torch.tensor([40, 7]), 8), {}, dict(out_swa_loc=poison(16))),
    ("fill_step", StepRows.verify(torch.tensor([40, 7]), 9), {}, dict(out_swa_loc=poison(18))),
    ("fill_step", StepRows.verify(torch.tensor([40, 7]), torch.tensor([4, 4])), {}, {}),
    ("fill_step", StepRows.prefill(torch.tensor([36, 3]), torch.tensor([40, 7])), {}, {}),
    ("fill_step", VERIFY, dict(dtype=torch.int64), {}),
    ("fill_step", VERIFY, dict(state_page=4), {}),
    ("fill_step", VERIFY, dict(columns=4), {}),
    ("fill_step", VERIFY, {}, dict(out_swa_loc=poison(9))),
    ("fill_step", VERIFY, {}, dict(out_swa_loc=poison(8, 2))),
    ("fill_step", VERIFY, {}, dict(window_locs=poison(2, 36))),
    ("fill_step", VERIFY, {}, dict(c4_state_locs=poison(2, 12))),
]


@pytest.mark.simulated_only
@pytest.mark.parametrize("kernel, rows, tables, outputs", CHOICES)
def test_steps_of_a_few_tokens_a_row_over_tables_of_pages_have_a_kernel_of_their_own(
    ascend_sim, kernel, rows, tables, outputs
):
    out = dict(out_swa_loc=poison(8), swa_page_table=poison(2, 19)) | outputs
    out["out_c4_state_loc"] = poison(len(out["out_swa_loc"]))
    build_step(paged_tables(**tables), rows, dsv4_npu_ops.Step(**out))
    assert [launch["kernel"] for launch in ascend_sim.take_counters()] == [kernel]
    assert ascend_sim.take_errors() == []


@pytest.mark.parametrize("page, context", [(1, 3000), (2, 5000)])
def test_page_tables_wider_than_a_tile(ascend_sim, page, context):
    step = make_step("decode", [0, 1, 2], [context, 0, context - 900], page=page, context=context)
    assert_equal(build_metadata(step, "cpu"), expect(step))
    assert ascend_sim.take_errors() == []


def test_page_tables_wider_than_a_tile_beside_so_many_rows_that_the_tile_is_that_of_other_stages(ascend_sim):
    lengths = [1030 if i % 64 == 0 else 0 for i in range(1600)]
    step = make_step("decode", [i % 4 for i in range(1600)], lengths, page=1, context=1030)
    ascend_sim.force_blocks(1)
    got = build_metadata(step, "cpu")
    ascend_sim.force_blocks(0)
    assert_equal(got, expect(step))
    assert ascend_sim.take_errors() == []


@pytest.mark.parametrize("dtype, live", [(torch.int32, 9216), (torch.int64, 1024)])
def test_a_row_whose_pages_fill_a_tile_leaves_none_of_it_to_the_next(ascend_sim, dtype, live):
    """As many entries as a tile of copied pages, or of gathered ones, holds."""
    pages = torch.arange(1, 2 * (live + 1) + 1, dtype=dtype).reshape(2, live + 1)
    tables = RequestTables.of({"swa": PageTable(pages, 1)}, sliding_window=live, max_context_len=live + 1)
    out = dsv4_npu_ops.Step(swa_page_table=poison(2, live + 1))
    ascend_sim.force_blocks(1)
    build_step(tables, StepRows.final(torch.tensor([live, 5])), out, req_pool_indices=torch.tensor([0, 1]))
    ascend_sim.force_blocks(0)
    expected = torch.full((2, live + 1), -1, dtype=torch.int32)
    expected[0, :live], expected[1, :5] = pages[0, :live], pages[1, :5]
    assert torch.equal(out.swa_page_table, expected)
    assert ascend_sim.take_errors() == []


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_totals_of_rows_are_made_where_no_page_table_is_stored_from_any_more(ascend_sim, dtype):
    """Of a step that leaves no tile of its own to page tables of long rows: one table, whose tile is full."""
    rows, columns = 1600, 1030
    pages = torch.arange(1, 4 * columns + 1, dtype=dtype).reshape(4, columns)
    tables = RequestTables.of({"full": PageTable(pages, 1)}, max_context_len=columns)
    out = dsv4_npu_ops.Step(num_groups=poison(2), cu_seqlens=poison(rows + 1), full_page_table=poison(rows, columns))
    lengths, requests = torch.zeros(rows, dtype=torch.int64), torch.arange(rows) % 4
    lengths[-20:] = columns
    ascend_sim.force_blocks(1)
    build_step(tables, StepRows.final(lengths), out, req_pool_indices=requests)
    ascend_sim.force_blocks(0)
    assert (out.num_groups.tolist(), out.cu_seqlens.tolist()) == ([0, 0], list(range(rows + 1)))
    assert bool((out.full_page_table[:-20] == -1).all())
    assert torch.equal(out.full_page_table[-20:], pages[requests[-20:]].int())
    assert ascend_sim.take_errors() == []


@pytest.mark.parametrize("blocks", [0, 1])
def test_prefill_of_several_tiles(ascend_sim, blocks):
    step = make_step("prefill", [0, 1, 2, 3], [11000, 2600, 7, 9001], [3, 100, 7, 2], page=64, context=11000)
    ascend_sim.force_blocks(blocks)
    got = build_metadata(step, "cpu")
    ascend_sim.force_blocks(0)
    assert_equal(got, expect(step))
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
    assert_equal(got, expect(step))
    assert ascend_sim.take_errors() == []


@pytest.mark.parametrize("form", ["verify", "ragged"])
def test_as_many_rows_as_a_device_takes(ascend_sim, form):
    rows = 4096
    lengths, widths = [i % 200 for i in range(rows)], [i % 3 for i in range(rows)] if form == "ragged" else None
    step = make_step(form, [3] * rows, lengths, widths, 2, context=210)
    assert_equal(build_metadata(step, "cpu", max_seq_len=210), expect(step, length=210))
    assert ascend_sim.take_errors() == []


def test_more_rows_than_a_device_takes():
    step = make_step("decode", [0] * 4097, [1] * 4097)
    with pytest.raises(ValueError, match="req_pool_indices has 4097 entries, expected at most 4096 on a device"):
        build_metadata(step, "cpu")


DUMMY_PAGES = [(1 << 27, False), ((1 << 27) - 1, True), (-(1 << 27), True), (-(1 << 27) - 1, False)]


@pytest.mark.parametrize("dummy, fits", DUMMY_PAGES)
def test_a_dummy_page_lies_within_the_slots_of_a_table(dummy, fits):
    """Of pages of 16 in a table of slots, which a device shifts whether or not they are dummies."""
    slots = torch.arange(64, dtype=torch.int32).reshape(1, 64)
    tables = RequestTables.of({"full": SlotTable(slots, 16)}, max_context_len=64)
    out = dsv4_npu_ops.Step(full_page_table=poison(1, 4))
    if fits:
        build_step(tables, StepRows.verify(torch.tensor([14]), 4), out, dummy_pages={"full": dummy})
        assert out.full_page_table.tolist() == [[0, 1, dummy, dummy]]
        return
    message = f"dummy_pages is {dummy} for full, expected -134217728 to 134217727 on a device"
    with pytest.raises(ValueError, match=message):
        build_step(tables, StepRows.verify(torch.tensor([14]), 4), out, dummy_pages={"full": dummy})
    assert out.full_page_table.tolist() == [[-77] * 4]


def test_host_numbers_that_do_not_fit():
    step = make_step("verify", [0, 1], [5, 6], width=4)
    with pytest.raises(ValueError, match=r"num_tokens is 7 .*, expected at least 4 for each of 2 rows"):
        build_metadata(step, "cpu", num_tokens=7)

"""Bad calls of a step: one line that names what the caller wrote, and nothing is written."""

import pytest
import torch
from backends import opcheck
from ops.step_inputs import filled_tables
from reference.step import POOLS

from dsv4_npu_ops import (
    KVLayout,
    MappedSlots,
    PageRing,
    PageTable,
    RequestRing,
    RequestTables,
    SlotTable,
    Step,
    StepRows,
    build_step,
)
from dsv4_npu_ops.layout.step import STEP_FIELDS
from dsv4_npu_ops.ops.step_sizes import step_sizes

POISON = -77
LAYOUT = KVLayout(
    page_size=16, sliding_window=20, max_requests=4, max_context_len=300, num_pages={pool: 8 for pool in POOLS}
)
# Two rows and 40 tokens.
SHAPES = {
    **{f"out_{pool}_loc": (12,) if pool == "c4" else (2,) if pool == "c128" else (40,) for pool in POOLS},
    **{f"{pool}_page_table": (2, 5) if pool == "c4" else (2, 1) if pool == "c128" else (2, 19) for pool in POOLS},
    **dict(positions=(40,), positions_c4=(12,), positions_c128=(2,), start_pos=(2,), seqused=(2,), kv_lens=(2,)),
    **dict(cu_seqlens=(3,), num_groups=(2,), c4_cos=(12, 4), c4_sin=(12, 4), c128_cos=(2, 4), c128_sin=(2, 4)),
    **dict(main_cos=(40, 4), main_sin=(40, 4), compress_cos=(40, 6), compress_sin=(40, 6)),
    **dict(c4_state_locs=(2, 48), c128_state_locs=(2, 168), window_locs=(2, 64)),
}


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def zeros(*shape, dtype=torch.int32):
    return torch.zeros(shape, dtype=dtype)


def both(*shape):
    """cos and sin of a RoPE base."""
    return torch.zeros(shape), torch.zeros(shape)


def buffer(name):
    wide = name.startswith("positions")
    dtype = torch.float32 if name.endswith(("_cos", "_sin")) else torch.int64 if wide else torch.int32
    return torch.full(SHAPES[name], POISON, dtype=dtype)


def refuse(kind, message, rows, *, tables=None, only=STEP_FIELDS, **changed):
    """The call raises, and every output keeps what it held. ``changed``: arguments of the call, or buffers."""
    out = Step(**{name: changed.pop(name, buffer(name)) for name in only})
    keywords = dict(req_pool_indices=int32(0, 1), rope_cos=torch.zeros(300, 4), rope_sin=torch.zeros(300, 4))
    keywords |= dict(main_rope=both(300, 4), compress_rope=both(301, 6)) | changed
    before = {name: getattr(out, name).clone() for name in only}
    with pytest.raises(kind) as error:
        build_step(filled_tables(LAYOUT, 0, "cpu") if tables is None else tables, rows, out, **keywords)
    assert message in str(error.value)
    for name, tensor in before.items():
        assert torch.equal(tensor, getattr(out, name)), name


def verify(lengths, widths=4):
    return StepRows.verify(torch.as_tensor(lengths), widths if isinstance(widths, int) else torch.as_tensor(widths))


def prefill(prefix, lengths):
    return StepRows.prefill(torch.as_tensor(prefix), torch.as_tensor(lengths))


def final(lengths, widths=1):
    return StepRows.final(torch.as_tensor(lengths), widths if isinstance(widths, int) else torch.as_tensor(widths))


def mixed(offsets, lengths):
    return StepRows.mixed(torch.as_tensor(offsets), torch.as_tensor(lengths))


BAD_ROWS = [
    (verify([5, -1]), "seq_lens[1] is -1, expected at least 0"),
    (verify([5, 5], [1, -3]), "num_draft_tokens[1] is -3, expected at least 0"),
    (verify([5, 0], [1, -3]), "num_draft_tokens[1] is -3, expected at least 0"),
    (
        verify([5, 298], 3),
        "seq_lens[1] is 298 before 3 new tokens, expected at most 300 (tables.max_context_len) with them",
    ),
    (
        verify([2**62, 2], 2),
        f"seq_lens[0] is {2**62} before 2 new tokens, expected at most 300 (tables.max_context_len)",
    ),
    (verify([5, 5], [2**40, 1]), f"seq_lens[0] is 5 before {2**40} new tokens, expected at most 300"),
    (
        verify([0, 5], [2**40, 1]),
        "num_tokens is 40 (entries of the token-aligned outputs), but row 0 ends at token 0 +",
    ),
    (
        verify([5, 5], [40, 1]),
        "num_tokens is 40 (entries of the token-aligned outputs), but row 1 ends at token 40 + 1",
    ),
    (prefill([1, -1], [5, 5]), "prefix_lens[1] is -1, expected at least 0"),
    (prefill([1, 6], [5, 5]), "seq_lens[1] is 5, expected at least prefix_lens[1] = 6"),
    (prefill([1, 0], [5, -5]), "seq_lens[1] is -5, expected at least 0"),
    (
        prefill([300, 0], [301, 5]),
        "seq_lens[0] is 301 with 1 new tokens, expected at most 300 (tables.max_context_len) with",
    ),
    (final([5, 301]), "seq_lens[1] is 301 with 1 new tokens, expected at most 300 (tables.max_context_len)"),
    (final([5, -1]), "seq_lens[1] is -1, expected at least 0"),
    (final([5, 3], 4), "seq_lens[1] is 3, expected at least its 4 new tokens"),
    (final([5, 3], [5, 4]), "seq_lens[1] is 3, expected at least its 4 new tokens"),
    (final([5, 3], [5, -4]), "num_new_tokens[1] is -4, expected at least 0"),
    (mixed([1, 2, 3], [5, 5]), "cu_seqlens[0] is 1, expected 0"),
    (mixed([0, 3, 2], [5, 5]), "cu_seqlens[2] is 2, expected at least cu_seqlens[1] = 3"),
    (
        mixed([0, 2**63 - 1, -(2**63)], [0, 5]),
        "num_tokens is 40 (entries of the token-aligned outputs), but row 0 ends",
    ),
    (mixed([0, -(2**63), 2], [5, 5]), f"cu_seqlens[1] is -{2**63}, expected at least cu_seqlens[0] = 0"),
    (mixed([0, 3, 9], [5, 5]), "seq_lens[1] is 5, expected at least its 6 new tokens"),
]


@pytest.mark.cpu_only
@pytest.mark.parametrize("rows, message", BAD_ROWS, ids=[message for _, message in BAD_ROWS])
def test_bad_rows(rows, message):
    refuse(ValueError, f"build_step: {message}", rows)


TOO_SMALL = [
    (
        dict(positions_c4=zeros(1, dtype=torch.int64), out_c4_loc=zeros(1)),
        "out.positions_c4 has 1 entries, expected at lea",
    ),
    (
        dict(positions_c128=zeros(0, dtype=torch.int64), out_c128_loc=zeros(0)),
        "out.positions_c128 has 0 entries, expected",
    ),
    (
        dict(out_c4_loc=zeros(1)),
        "out.out_c4_loc has 1 entries, expected at least 10 (groups of 4 that the step completes)",
    ),
    (dict(c4_sin=torch.zeros(1, 4)), "out.c4_sin has 1 entries, expected at least 10 (groups of 4"),
    (
        dict(full_page_table=zeros(2, 8)),
        "out.full_page_table has 8 columns, expected at least 9 (pages of row 0, which has",
    ),
    (dict(swa_page_table=zeros(2, 8)), "out.swa_page_table has 8 columns, expected at least 9 (pages of row 0"),
    (dict(c4_page_table=zeros(2, 2)), "out.c4_page_table has 2 columns, expected at least 3 (pages of row 0"),
    (dict(c4_state_page_table=zeros(2, 8)), "out.c4_state_page_table has 8 columns, expected at least 9"),
    (dict(c128_state_page_table=zeros(2, 8)), "out.c128_state_page_table has 8 columns, expected at least 9"),
    (
        dict(c4_state_locs=zeros(2, 29)),
        "out.c4_state_locs has 29 columns, expected at least 30 (8 and the 22 new tokens of",
    ),
    (
        dict(c128_state_locs=zeros(2, 149)),
        "out.c128_state_locs has 149 columns, expected at least 150 (128 and the 22 new",
    ),
    (
        dict(window_locs=zeros(2, 41)),
        "out.window_locs has 41 columns, expected at least 42 (window and new tokens of row 0)",
    ),
]


@pytest.mark.cpu_only
@pytest.mark.parametrize("small, message", TOO_SMALL, ids=[message for _, message in TOO_SMALL])
def test_too_small(small, message):
    refuse(ValueError, f"build_step: {message}", prefill([110, 0], [132, 18]), only=(*small, "kv_lens"), **small)


BAD_BUFFERS = [
    (dict(positions_c4=zeros(9, dtype=torch.int64)), "out.c4_cos has shape [12, 4], expected [9, 4]"),
    (dict(positions_c4=zeros(12)), "out.positions_c4 has dtype Int, expected Long"),
    (dict(positions_c4=zeros(12, 1, dtype=torch.int64)), "out.positions_c4 has shape [12, 1], expected [12]"),
    (dict(positions_c128=zeros(4, dtype=torch.int64)[::2]), "out.positions_c128 has strides [2]"),
    (dict(out_c4_loc=zeros(12, dtype=torch.float32)), "out.out_c4_loc has dtype Float, expected Int or Long"),
    (dict(out_c128_loc=zeros(3)), "out.out_c128_loc has shape [3], expected [2]"),
    (dict(out_swa_loc=zeros(39)), "out.out_swa_loc has shape [39], expected [40]"),
    (dict(out_swa_loc=zeros(40, 3)), "out.out_swa_loc has shape [40, 3], expected [40, 2]"),
    (dict(out_swa_loc=zeros(40, 2, dtype=torch.int64)), "out.out_swa_loc has dtype Long, expected Int"),
    (dict(out_swa_loc=zeros(2, 40).T), "out.out_swa_loc has strides [1, 40]"),
    (dict(out_c4_state_loc=zeros(80)[::2]), "out.out_c4_state_loc has strides [2]"),
    (dict(start_pos=zeros(1)), "out.start_pos has shape [1], expected [2]"),
    (dict(seqused=zeros(3)), "out.seqused has shape [3], expected [2]"),
    (dict(cu_seqlens=zeros(2)), "out.cu_seqlens has shape [2], expected [3]"),
    (dict(kv_lens=torch.zeros(2)), "out.kv_lens has dtype Float, expected Int"),
    (dict(num_groups=zeros(3)), "out.num_groups has shape [3], expected [2]"),
    (dict(positions=zeros(40)), "out.positions has dtype Int, expected Long"),
    (dict(swa_page_table=zeros(2)), "out.swa_page_table has shape [2], expected 2 dimensions"),
    (dict(swa_page_table=zeros(3, 20)), "out.swa_page_table has shape [3, 20], expected 2 rows of at least 1 column"),
    (dict(c128_page_table=zeros(2, 0)), "out.c128_page_table has shape [2, 0], expected 2 rows of at least 1 column"),
    (dict(c4_page_table=zeros(2, 40)[:, ::2]), "out.c4_page_table has strides [40, 2]"),
    (
        dict(c4_page_table=zeros(1, 5).expand(2, 5)),
        "out.c4_page_table has strides [0, 1], expected rows that do not overlap",
    ),
    (dict(c4_page_table=zeros(2, 5, dtype=torch.int64)), "out.c4_page_table has dtype Long, expected Int"),
    (dict(c4_state_locs=zeros(2, 7)), "out.c4_state_locs has 7 columns, expected at least 8"),
    (dict(c128_state_locs=zeros(2, 127)), "out.c128_state_locs has 127 columns, expected at least 128"),
    (dict(c4_state_locs=zeros(3, 48)), "out.c4_state_locs has shape [3, 48], expected [2, 48]"),
    (
        dict(window_locs=zeros(3, 64), window_block=2),
        "out.window_locs has shape [3, 64], expected a multiple of 2 rows, at",
    ),
    (
        dict(window_locs=zeros(2, 64), window_block=2),
        "out.window_locs has shape [2, 64], expected a multiple of 2 rows, at",
    ),
    (dict(window_block=0), "window_block is 0, expected at least 1"),
    (dict(window_locs=zeros(2, 2, 64)), "out.window_locs has shape [2, 2, 64], expected 2 dimensions, or others of 1"),
    (dict(c4_cos=torch.zeros(12, 5)), "out.c4_cos has shape [12, 5], expected [12, 4]"),
    (dict(c4_sin=torch.zeros(12, 4).half()), "out.c4_sin has dtype Half, expected Float"),
    (dict(c128_sin=torch.zeros(2, 8)[:, ::2]), "out.c128_sin has strides [8, 2]"),
    (dict(c128_sin=torch.zeros(2)), "out.c128_sin has shape [2], expected 2 dimensions"),
    (dict(rope_cos=torch.zeros(8)), "rope_cos has shape [8], expected 2 dimensions"),
    (
        dict(rope_cos=torch.zeros(0, 4), rope_sin=torch.zeros(0, 4)),
        "rope_cos has shape [0, 4], expected at least 1 row",
    ),
    (dict(rope_cos=torch.zeros(300, 4).half()), "rope_cos has dtype Half, expected Float"),
    (dict(rope_cos=torch.zeros(300, 8)[:, ::2]), "rope_cos has strides [8, 2]"),
    (dict(rope_sin=torch.zeros(299, 4)), "rope_sin has shape [299, 4], expected [300, 4]"),
    (dict(rope_sin=None), "RoPE rows are asked for, expected rope_cos and rope_sin"),
    (dict(main_cos=torch.zeros(39, 4)), "out.main_cos has shape [39, 4], expected [40, 4]"),
    (dict(compress_sin=torch.zeros(40, 4)), "out.compress_sin has shape [40, 4], expected [40, 6]"),
    (dict(compress_sin=torch.zeros(40, 6).half()), "out.compress_sin has dtype Half, expected Float"),
    (dict(main_sin=torch.zeros(40, 8)[:, ::2]), "out.main_sin has strides [8, 2]"),
    (dict(main_rope=both(8)), "main_rope[0] has shape [8], expected 2 dimensions"),
    (dict(main_rope=both(0, 4)), "main_rope[0] has shape [0, 4], expected at least 1 row"),
    (dict(main_rope=(torch.zeros(300, 4), torch.zeros(299, 4))), "main_rope[1] has shape [299, 4], expected [300, 4]"),
    (dict(main_rope=(torch.zeros(300, 4), torch.zeros(300, 4).half())), "main_rope[1] has dtype Half, expected Float"),
    (
        dict(compress_rope=(both(300, 6)[0].double(),) * 2),
        "compress_rope[0] has dtype torch.float64, expected",
    ),
    (dict(compress_rope=(torch.zeros(300, 12)[:, ::2],) * 2), "compress_rope[0] has strides [12, 2]"),
    (dict(compress_rope=None), "out.compress_cos is asked for, expected compress_rope[0]"),
    (dict(dummy_slots=dict(c5=1)), "dummy_slots names pool 'c5', expected pools among full, swa"),
    (dict(dummy_slots=dict(c4=2**31)), "dummy_slots is 2147483648, expected -2147483647 to 2147483647"),
    (dict(dummy_pages=dict(c4=-(2**31))), "dummy_pages is -2147483648, expected -2147483647 to 2147483647"),
    (dict(req_pool_indices=torch.zeros(2)), "req_pool_indices has dtype Float, expected Int or Long"),
    (dict(req_pool_indices=zeros(3)), "req_pool_indices has shape [3], expected [2]"),
    (dict(req_pool_indices=zeros(2, 1)), "req_pool_indices has shape [2, 1], expected 1 dimension"),
    (dict(req_pool_indices=zeros(4)[::2]), "req_pool_indices has strides [2]"),
]


@pytest.mark.parametrize("bad, message", BAD_BUFFERS, ids=[message for _, message in BAD_BUFFERS])
def test_bad_arguments(bad, message):
    refuse(ValueError, f"build_step: {message}", verify([5, 6]), **bad)


BAD_FORMS = [
    (lambda: verify([5, 6], -2), "num_draft_tokens is -2, expected at least 0"),
    (lambda: final([5, 6], -2), "num_new_tokens is -2, expected at least 0"),
    (lambda: verify([5, 6], [1]), "num_draft_tokens has shape [1], expected [2]"),
    (lambda: final([5, 6], [1]), "num_new_tokens has shape [1], expected [2]"),
    (lambda: mixed([0, 6], [1, 5]), "cu_seqlens has shape [2], expected [3]"),
    (lambda: prefill([1], [1, 5]), "prefix_lens has shape [1], expected [2]"),
    (lambda: StepRows.verify(int32(1, 2), torch.zeros(2)), "num_draft_tokens has dtype Float, expected Int or Long"),
    (lambda: StepRows.verify(int32(1, 2), int32(1, 0, 2, 0)[::2]), "num_draft_tokens has strides [2]"),
    (lambda: StepRows(int32(1, 2), 6), "form is 6, expected 0 to 5"),
    (lambda: StepRows(int32(1, 2), 0), "prefix_lens is None, expected a tensor for form 0"),
    (lambda: StepRows(int32(1, 2), 4, int32(1, 2)), "num_draft_tokens is a tensor, expected None for form 4"),
]


@pytest.mark.parametrize("rows, message", BAD_FORMS, ids=[message for _, message in BAD_FORMS])
def test_bad_forms(rows, message):
    refuse(ValueError, f"build_step: {message}", rows())


@pytest.mark.cpu_only
def test_unknown_requests():
    refuse(
        ValueError, "req_pool_indices[1] is 4, expected 0 <= index < 4", verify([5, 6]), req_pool_indices=int32(0, 4)
    )
    refuse(ValueError, "req_pool_indices[0] is -1, expected 0 <= index", verify([5, 6]), req_pool_indices=int32(-1, 0))
    rows = final([1, 1, 1, 1, 1])
    message = "seq_lens has tokens in row 4, expected at most 4 rows (those of the tables)"
    refuse(ValueError, message, rows, req_pool_indices=None, only=("num_groups",))


@pytest.mark.cpu_only
def test_positions_beyond_the_rope_tables():
    for lengths, rope, message in (
        ([6, 9], 5, "out.positions_c4 reaches 8, expected 0 <= position < 5 (rows of rope_cos)"),
        ([252, 0], 128, "out.positions_c4 reaches 252, expected 0 <= position < 128 (rows of rope_cos)"),
    ):
        cos = torch.zeros(rope, 4)
        refuse(IndexError, f"build_step: {message}", verify(lengths), rope_cos=cos, rope_sin=cos)
    message = "build_step: out.positions_c128 reaches 128, expected 0 <= position < 128"
    cos = torch.zeros(128, 4)
    refuse(IndexError, message, verify([252, 0]), rope_cos=cos, rope_sin=cos, only=("c128_sin", "seqused"))
    message = "build_step: out.compress_sin reaches position 12, expected 0 <= position < 12 (rows of compress_rope[1])"
    refuse(IndexError, message, verify([9, 5]), compress_rope=both(12, 6), only=("compress_sin", "seqused"))


def tables_of(context=300, **pools):
    return RequestTables.of(pools, sliding_window=20, max_context_len=context)


BAD_TABLES = [
    (dict(swa=PageTable(zeros(4, 0), 16)), "table of pool swa has 0 columns, expected at least 1"),
    (dict(full=PageTable(zeros(4, 18), 16)), "table of pool full has 18 columns for 288 units, expected room for 300"),
    (
        dict(full=SlotTable(zeros(4, 299), 16)),
        "table of pool full has 299 columns for 299 units, expected room for 300",
    ),
    (dict(c4=SlotTable(zeros(4, 74), 16)), "table of pool c4 has 74 columns for 74 units, expected room for 75"),
    (dict(swa=SlotTable(zeros(4, 20), 16)), "table of pool swa has 20 columns for 20 units, expected room for 300"),
    (dict(full=PageTable(zeros(4, 600)[:, ::2], 1)), "table of pool full has strides [600, 2], expected elements of a"),
    (dict(full=PageTable(zeros(4), 16)), "table of pool full has shape [4], expected 2 dimensions"),
    (
        dict(full=PageTable(zeros(4, 19), 16), swa=MappedSlots(zeros(4, 19), 16)),
        "table of pool swa has shape [4, 19], expected 1 dimension",
    ),
    (
        dict(full=PageTable(zeros(4, 19), 16), c4=MappedSlots(zeros(400), 16)),
        "base of pool c4 is full, expected a pool with a slot for as many tokens",
    ),
    (
        dict(swa=RequestRing(8), c4_state=PageRing(8)),
        "base of pool c4_state is swa of kind 5, expected a pool with a table or a mapping",
    ),
]


@pytest.mark.parametrize("pools, message", BAD_TABLES, ids=[message for _, message in BAD_TABLES])
def test_bad_tables(pools, message):
    refuse(ValueError, f"build_step: {message}", verify([5, 6]), tables=tables_of(**pools), only=("num_groups",))


def test_what_a_pool_cannot_give():
    tables = tables_of(full=PageTable(zeros(4, 19), 16), c4_state=RequestRing(8))
    for name, message in (
        ("out_swa_loc", "out.out_swa_loc is asked for, expected a pool swa that exists"),
        ("window_locs", "out.window_locs is asked for, expected a pool swa that exists"),
        ("c128_state_locs", "out.c128_state_locs is asked for, expected a pool c128_state that exists"),
        ("c4_page_table", "out.c4_page_table is asked for, expected a pool c4 that exists"),
        ("c4_state_page_table", "out.c4_state_page_table is asked for, expected a pool c4_state that knows pages"),
    ):
        refuse(ValueError, f"build_step: {message}", verify([5, 6]), tables=tables, only=("start_pos", name))
    pairs = dict(out_c4_state_loc=zeros(12, 2))
    message = "out.out_c4_state_loc is asked for as pairs, expected a pool c4_state that knows pages"
    refuse(ValueError, f"build_step: {message}", verify([5, 6]), tables=tables, only=("out_c4_state_loc",), **pairs)
    message = "closes_cu_seqlens is True, expected an output with an entry for each token"
    refuse(ValueError, message, verify([5, 6]), only=("cu_seqlens",), closes_cu_seqlens=True)


@pytest.mark.cpu_only
def test_more_live_pages_than_columns():
    """Pages of 16 and a window of 20: at 100 the window starts in page 5, and 129 tokens end in page 8."""
    tables = tables_of(full=PageTable(zeros(4, 19), 16), swa=PageTable(torch.ones(4, 3, dtype=torch.int32), 16))
    message = "build_step: table of pool swa has 3 columns, expected at least 4 (live pages of row 1: 5 to 8)"
    refuse(ValueError, message, prefill([0, 100], [40, 129]), tables=tables, only=("kv_lens", "full_page_table"))
    out = Step(swa_page_table=buffer("swa_page_table"))
    build_step(tables, prefill([0, 100], [40, 128]), out, req_pool_indices=int32(0, 1))
    assert out.swa_page_table[1].tolist() == [-1] * 5 + [1, 1, 1] + [-1] * 11


# Field, and the last full slot that a verify of 5 tokens at 40 looks up in the mapping.
MAPPED_FIELDS = dict(out_swa_loc=45, out_c4_state_loc=45, c4_state_locs=45, window_locs=45, swa_page_table=33)


@pytest.mark.cpu_only
@pytest.mark.parametrize("name, last", MAPPED_FIELDS.items(), ids=MAPPED_FIELDS)
def test_a_slot_beyond_a_mapping(name, last):
    """Full slots 1..300 at the tokens 0..299 of request 1, and a mapping of `entries` of them."""
    full = zeros(4, 300)
    full[1] = torch.arange(1, 301)
    rows = verify([0, 40], 5)

    def tables(entries):
        mapping = torch.arange(entries, dtype=torch.int64)
        return tables_of(full=SlotTable(full, 16), swa=MappedSlots(mapping, 16), c4_state=PageRing(8))

    entries = f"mapping of pool swa has {last} entries, expected one for slot {last} of pool full (token {last - 1}"
    message = f"build_step: {entries}"
    refuse(ValueError, message, rows, tables=tables(last), only=("start_pos", name))
    out = Step(**{name: buffer(name)})
    build_step(tables(last + 1), rows, out, req_pool_indices=int32(9, 1))
    assert (getattr(out, name) != POISON).all()


@pytest.mark.cpu_only
def test_sizes_of_a_step():
    for rows, *sizes, final_lens in (
        (StepRows.verify(int32(126, 0, 7), int32(6, 5, 0)), 11, 2, 1, 132, 6, [132, 0, 0]),
        (StepRows.prefill(torch.tensor([100, 9]), int32(300, 9)), 200, 50, 2, 300, 200, [300, 0]),
        (StepRows.final(int32(4, 0, 5)), 3, 1, 0, 5, 1, [4, 0, 5]),
        (StepRows.mixed(int32(0, 4, 5, 9), int32(4, 130, 260)), 9, 2, 0, 260, 4, [4, 130, 260]),
        (StepRows.verify(int32(), 4), 0, 0, 0, 0, 0, []),
    ):
        *given, given_lens = step_sizes(rows)
        assert given == sizes
        assert given_lens.dtype is torch.int32 and given_lens.tolist() == final_lens
    with pytest.raises(ValueError, match=r"step_sizes: seq_lens\[1\] is 3, expected at least prefix_lens\[1\] = 4"):
        step_sizes(StepRows.prefill(int32(1, 4), int32(5, 3)))
    torch.library.opcheck(
        torch.ops.dsv4_npu_ops.step_sizes.default,
        (int32(5, 3), int32(1, 0), 0, 0),
        test_utils=("test_schema", "test_faketensor"),
    )


@pytest.mark.one_variant
@pytest.mark.parametrize("form", range(6))
@pytest.mark.parametrize("fields", [list(range(27)), [0, 7, 15, 22], []])
def test_opcheck(device, form, fields):
    tables = filled_tables(LAYOUT, 0, device)
    operand = {0: int32(120, 3), 2: int32(3, 2), 3: int32(0, 3, 5), 5: int32(3, 2)}.get(form)
    cos = torch.zeros(300, 4, device=device)
    arguments = (
        *tables.op_pools,
        int32(0, 3).to(device),
        torch.tensor([126, 7], device=device),
        None if operand is None else operand.to(device),
        cos,
        cos,
        form,
        4,
        20,
        300,
        [buffer(STEP_FIELDS[field]).to(device) for field in fields],
        sum(1 << field for field in fields),
        [0] * 6,
        [-1] * 6,
    )
    opcheck(torch.ops.dsv4_npu_ops.step.default, arguments)

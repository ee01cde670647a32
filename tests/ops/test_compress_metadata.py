"""Compress metadata against its oracle: every form, both overloads."""

import dataclasses

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from ops.step_inputs import FORMS, POOLS, Step, as_lists, filled_tables, steps
from reference.compress_metadata import compress_metadata as oracle

import dsv4_npu_ops
from dsv4_npu_ops import CompressMetadata

INT64_FIELDS = ("positions_c4", "positions_c128", "positions")
PAGE_POOLS = POOLS[1:]
RATIO = dict(full=1, swa=1, c4=4, c128=128, c4_state=1, c128_state=1)


def build(step, device, **keywords):
    requests, lengths, operands = step.tensors(device)
    if step.form == "prefill":
        return dsv4_npu_ops.build_compress_metadata_prefill(step.tables, requests, operands, lengths, **keywords)
    if step.form == "decode":
        keywords.pop("num_tokens", None)
        return dsv4_npu_ops.build_compress_metadata_decode(step.tables, requests, lengths, **keywords)
    return dsv4_npu_ops.build_compress_metadata_verify(
        step.tables, requests, lengths, step.num_draft_tokens(device), **keywords
    )


def page_widths(layout, length):
    """What ``length // u`` units need in pages, at least one."""
    return {p: max(1, (length // RATIO[p] + layout.page_size - 1) // layout.page_size) for p in PAGE_POOLS}


def expect(step, **keywords):
    return oracle(
        step.form,
        step.rows,
        step.requests,
        step.lengths,
        step.operands,
        step.width,
        page=step.layout.page_size,
        window=step.layout.sliding_window,
        **keywords,
    )


def assert_equal(got, want):
    for field in dataclasses.fields(got):
        tensor = getattr(got, field.name)
        assert tensor.dtype == (torch.int64 if field.name in INT64_FIELDS else torch.int32), field.name
        assert tensor.tolist() == want[field.name], field.name


def poisoned(layout, rows, tokens, length=None):
    buffers = CompressMetadata.empty(layout, rows, tokens, length)
    for field in dataclasses.fields(buffers):
        getattr(buffers, field.name).fill_(-77)
    return buffers


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_new_outputs_equal_the_oracle(device, form, data):
    step = data.draw(steps(device, (form,)))
    spare = data.draw(st.integers(0, 5)) if form != "decode" else 0
    longest = max(step.finals(), default=0)
    length = data.draw(st.sampled_from([None, longest, longest + 70]))
    tokens = None
    if spare:
        tokens = expect(step, columns=page_widths(step.layout, 1 << 12))["cu_seqlens"][-1] + spare
    got = build(step, device, num_tokens=tokens, max_seq_len=length)
    columns = page_widths(step.layout, step.layout.max_context_len if length is None else length)
    assert_equal(got, expect(step, num_tokens=tokens, columns=columns))
    for pool in PAGE_POOLS:
        if step.rows[pool] is not None:
            assert getattr(got, f"{pool}_page_table").shape == (len(step.requests), columns[pool])


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_buffers_are_overwritten_to_the_last_entry(device, form, data):
    step = data.draw(steps(device, (form,)))
    need = expect(step, columns=page_widths(step.layout, 1 << 12))
    tokens = need["cu_seqlens"][-1] + data.draw(st.integers(0, 40))
    length = max(step.finals(), default=0) + data.draw(st.sampled_from([0, 1, 300]))
    out = poisoned(step.layout, len(step.requests), tokens, length)
    assert build(step, device, out=out, max_seq_len=length) is out
    assert_equal(out, expect(step, num_tokens=tokens, columns=page_widths(step.layout, length)))


@pytest.mark.cpu_only
def test_page_tables_that_are_written_by_several_threads():
    """40 rows of 8192 columns in three tables: more entries than one thread takes."""
    rows, context = 40, 8192
    layout = make_layout(page_size=1, max_requests=rows, max_context_len=context, sliding_window=300)
    tables = filled_tables(layout, 0, "cpu")
    lengths = [(i * 997) % (context - 3) for i in range(rows)]
    step = Step(
        "verify", layout, tables, as_lists(tables), list(range(rows)), lengths, [0] * rows, 3, (torch.int32,) * 3
    )
    assert_equal(build(step, "cpu"), expect(step, columns=page_widths(layout, context)))


def test_pages_of_one_slot_that_fill_several_tiles(device):
    """A padding row, and windows that start in the first tile and at a tile's last entry."""
    rows, context = 4, 2500
    layout = make_layout(page_size=1, max_requests=rows, max_context_len=context, sliding_window=300)
    tables = filled_tables(layout, 0, device)
    lengths = [700, 0, 2490, 1023 + 299]
    step = Step(
        "verify", layout, tables, as_lists(tables), list(range(rows)), lengths, [0] * rows, 3, (torch.int32,) * 3
    )
    assert_equal(build(step, device), expect(step, columns=page_widths(layout, context)))


def make_layout(**changes):
    arguments = dict(page_size=16, sliding_window=20, max_requests=4, max_context_len=300) | changes
    return dsv4_npu_ops.KVLayout(**arguments, num_pages={pool: 8 for pool in POOLS})


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


BAD_VALUES = [
    ("verify", dict(lens=[5, -1]), "seq_lens[1] is -1, expected at least 0"),
    ("verify", dict(width=-2), "num_draft_tokens is -2, expected at least 0"),
    ("verify", dict(widths=[1, -3]), "num_draft_tokens[1] is -3, expected at least 0"),
    ("verify", dict(lens=[5, 0], widths=[1, -3]), "num_draft_tokens[1] is -3, expected at least 0"),
    (
        "verify",
        dict(lens=[5, 298], width=3),
        "seq_lens[1] is 298 before 3 new tokens, expected at most 300 (tables.layout.max_context_len) with them",
    ),
    (
        "verify",
        dict(lens=[2**62, 2], width=2),
        f"seq_lens[0] is {2**62} before 2 new tokens, expected at most 300 (tables.layout.max_context_len)",
    ),
    ("verify", dict(requests=[0, 4]), "req_pool_indices[1] is 4, expected 0 <= index < 4 (rows of the tables)"),
    ("verify", dict(requests=[-1, 0]), "req_pool_indices[0] is -1, expected 0 <= index < 4"),
    (
        "verify",
        dict(lens=[0, 5], max_seq_len=6),
        "max_seq_len is 6, expected at least 7 (tokens of row 1 after the step)",
    ),
    ("verify", dict(width=2, num_tokens=3), "num_tokens is 3 (entries of the token-aligned outputs), but row 1 ends"),
    ("verify", dict(widths=[2**40, 1], num_tokens=3), "seq_lens[0] is 5 before 1099511627776 new tokens"),
    ("verify", dict(lens=[0, 5], widths=[2**40, 1], num_tokens=3), "num_tokens is 3 (entries"),
    ("prefill", dict(prefix=[1, -1]), "prefix_lens[1] is -1, expected at least 0"),
    ("prefill", dict(prefix=[1, 6]), "seq_lens[1] is 5, expected at least prefix_lens[1] = 6"),
    ("prefill", dict(lens=[5, -5]), "seq_lens[1] is -5, expected at least 0"),
    (
        "prefill",
        dict(lens=[301, 5]),
        "seq_lens[0] is 301 with 301 new tokens, expected at most 300 (tables.layout.max_context_len) with them",
    ),
    ("prefill", dict(num_tokens=9), "num_tokens is 9 (entries of the token-aligned outputs), but row 1 ends"),
    (
        "decode",
        dict(lens=[5, 301]),
        "seq_lens[1] is 301 with 1 new tokens, expected at most 300 (tables.layout.max_context_len)",
    ),
    ("decode", dict(lens=[5, -1]), "seq_lens[1] is -1, expected at least 0"),
    ("decode", dict(requests=[9, 0]), "req_pool_indices[0] is 9, expected 0 <= index < 4"),
]


def call(tables, form, requests=(0, 1), lens=(5, 5), prefix=(0, 0), width=2, widths=None, out=None, **keywords):
    requests, lens, prefix = (torch.as_tensor(v, dtype=torch.int64) for v in (requests, lens, prefix))
    if form == "prefill":
        return dsv4_npu_ops.build_compress_metadata_prefill(tables, requests, prefix, lens, out=out, **keywords)
    if form == "decode":
        return dsv4_npu_ops.build_compress_metadata_decode(tables, requests, lens, out=out, **keywords)
    widths = width if widths is None else torch.tensor(widths)
    return dsv4_npu_ops.build_compress_metadata_verify(tables, requests, lens, widths, out=out, **keywords)


@pytest.mark.cpu_only
@pytest.mark.parametrize("form, bad, message", BAD_VALUES, ids=[message for _, _, message in BAD_VALUES])
def test_bad_values_raise_and_write_nothing(form, bad, message):
    layout = make_layout()
    tables = filled_tables(layout, 0, "cpu")
    before = [t.clone() for t in tables.in_order()]
    sizes = {} if form == "decode" else dict(num_tokens=40)
    with pytest.raises(ValueError) as error:
        call(tables, form, **(sizes | bad))
    assert f"build_compress_metadata_{form}: {message}" in str(error.value)
    out = poisoned(layout, 2, bad.get("num_tokens", 40))
    with pytest.raises(ValueError) as error:
        call(tables, form, out=out, **{k: v for k, v in bad.items() if k != "num_tokens"})
    assert f"build_compress_metadata_{form}: {message}" in str(error.value)
    assert all((getattr(out, f.name) == -77).all() for f in dataclasses.fields(out))
    assert all(torch.equal(a, b) for a, b in zip(before, tables.in_order(), strict=True))


# What a device cannot know before it runs: it keeps within the buffer and sets its error word.
TOO_SMALL = [
    (dict(positions_c4=torch.zeros(1, dtype=torch.int64), c4_loc=int32(0)), "positions_c4 has 1 entries, expected at"),
    (
        dict(positions_c128=torch.zeros(0, dtype=torch.int64), c128_loc=int32()),
        "positions_c128 has 0 entries, expected at least 1 (groups of 128 that the step completes)",
    ),
    (dict(swa_page_table=torch.zeros(2, 8, dtype=torch.int32)), "swa_page_table has 8 columns, expected at least 9"),
    (dict(c4_page_table=torch.zeros(2, 2, dtype=torch.int32)), "c4_page_table has 2 columns, expected at least 3"),
    (dict(c4_state_page_table=torch.zeros(2, 8, dtype=torch.int32)), "c4_state_page_table has 8 columns, expected"),
    (dict(c128_state_page_table=torch.zeros(2, 8, dtype=torch.int32)), "c128_state_page_table has 8 columns, expec"),
]

BAD_BUFFERS = [
    (dict(c128_page_table=torch.zeros(2, 0, dtype=torch.int32)), "c128_page_table has shape [2, 0], expected at least"),
    (dict(positions_c4=torch.zeros(9, dtype=torch.int32)), "positions_c4 has dtype Int, expected Long"),
    (dict(positions_c4=torch.zeros(9, 1, dtype=torch.int64)), "positions_c4 has shape [9, 1], expected 1 dimension"),
    (dict(positions_c128=torch.zeros(18, dtype=torch.int64)[::2]), "positions_c128 has strides [2]"),
    (dict(c4_loc=torch.zeros(9, dtype=torch.int64)), "c4_loc has dtype Long, expected Int"),
    (dict(c4_loc=int32(0)), "c4_loc has shape [1], expected [12]"),
    (dict(c128_loc=int32(0, 0, 0)), "c128_loc has shape [3], expected [2]"),
    (dict(start_pos=int32(0)), "start_pos has shape [1], expected [2]"),
    (dict(seqused=int32(0, 0, 0)), "seqused has shape [3], expected [2]"),
    (dict(cu_seqlens=int32(0, 0)), "cu_seqlens has shape [2], expected [3]"),
    (dict(kv_lens=torch.zeros(2)), "kv_lens has dtype Float, expected Int"),
    (dict(positions=torch.zeros(40, dtype=torch.int32)), "positions has dtype Int, expected Long"),
    (dict(positions=torch.zeros(40, 1, dtype=torch.int64)), "positions has shape [40, 1], expected 1 dimension"),
    (dict(swa_page_table=torch.zeros(2, dtype=torch.int32)), "swa_page_table has shape [2], expected 2 dimensions"),
    (dict(swa_page_table=torch.zeros(3, 20, dtype=torch.int32)), "swa_page_table has shape [3, 20], expected [2, 20]"),
    (dict(c4_page_table=torch.zeros(2, 40, dtype=torch.int32)[:, ::2]), "c4_page_table has strides [40, 2]"),
]


@pytest.mark.parametrize(
    "bad, message", [*BAD_BUFFERS, *(pytest.param(*case, marks=pytest.mark.cpu_only) for case in TOO_SMALL)]
)
def test_bad_buffers_raise_and_write_nothing(bad, message):
    layout = make_layout()
    tables = filled_tables(layout, 0, "cpu")
    out = dataclasses.replace(poisoned(layout, 2, 40), **bad)
    before = {f.name: getattr(out, f.name).clone() for f in dataclasses.fields(out)}
    with pytest.raises(ValueError) as error:
        call(tables, "prefill", lens=[132, 18], prefix=[110, 0], out=out)
    assert f"build_compress_metadata_prefill: out.{message}" in str(error.value)
    for name, tensor in before.items():
        assert torch.equal(tensor, getattr(out, name)), name


BAD_INPUTS = [
    (dict(requests=int32(0, 1, 2)), "seq_lens has shape [2], expected [3]"),
    (dict(requests=torch.zeros(2)), "req_pool_indices has dtype Float, expected Int or Long"),
    (dict(requests=torch.zeros(2, 1, dtype=torch.int32)), "req_pool_indices has shape [2, 1], expected 1 dimension"),
    (dict(requests=torch.zeros(4, dtype=torch.int32)[::2]), "req_pool_indices has strides [2]"),
    (dict(lens=torch.zeros(2)), "seq_lens has dtype Float, expected Int or Long"),
    (dict(lens=torch.zeros(4, dtype=torch.int32)[::2]), "seq_lens has strides [2]"),
    (dict(widths=int32(1)), "num_draft_tokens has shape [1], expected [2]"),
    (dict(widths=torch.zeros(2)), "num_draft_tokens has dtype Float, expected Int or Long"),
    (dict(num_tokens=-1), "num_tokens is -1, expected at least 0"),
    (dict(num_tokens=2**31), f"num_tokens is {2**31}, expected at most {2**31 - 1}"),
    (dict(max_seq_len=-1), "max_seq_len is -1, expected at least 0"),
    (dict(swa=torch.zeros(4, 300)), "tables.swa has dtype Float, expected Int"),
    (dict(swa=torch.zeros(4, 299, dtype=torch.int32)), "tables.swa has 299 columns, expected at least 300 for tables."),
    (dict(c4=torch.zeros(4, 74, dtype=torch.int32)), "tables.c4 has 74 columns, expected at least 75"),
    (dict(c128=torch.zeros(3, 2, dtype=torch.int32)), "tables.c128 has 3 rows, expected 4 like the other tables"),
    (
        dict(c4_state=torch.zeros(4, 600, dtype=torch.int32)[:, ::2]),
        "tables.c4_state has strides [600, 2], expected el",
    ),
    (dict(c4_state=torch.zeros(1, 300, dtype=torch.int32).expand(4, -1)), "tables.c4_state has strides [0, 1], expec"),
    (dict(c128_state=torch.zeros(4, dtype=torch.int32)), "tables.c128_state has shape [4], expected 2 dimensions"),
    (dict(page_size=12), "tables.page_size is 12, expected a power of two from 1 up"),
    (dict(page_size=0), "tables.page_size is 0, expected a power of two"),
    (dict(sliding_window=0), "tables.sliding_window is 0, expected at least 1"),
]


@pytest.mark.parametrize("bad, message", BAD_INPUTS, ids=[message for _, message in BAD_INPUTS])
def test_bad_inputs(bad, message):
    tables = filled_tables(make_layout(), 0, "cpu")
    for name in (*POOLS, "page_size", "sliding_window"):
        if name in bad:
            setattr(tables, name, bad[name])
    requests, lens = bad.get("requests", int32(0, 1)), bad.get("lens", int32(5, 5))
    keywords = {k: bad[k] for k in ("num_tokens", "max_seq_len") if k in bad}
    widths = bad.get("widths", 2)
    if isinstance(widths, torch.Tensor) and "num_tokens" not in keywords:
        keywords["num_tokens"] = 9
    with pytest.raises(ValueError) as error:
        dsv4_npu_ops.build_compress_metadata_verify(tables, requests, lens, widths, **keywords)
    assert f"build_compress_metadata_verify: {message}" in str(error.value)


@pytest.mark.cpu_only
def test_sizes_of_a_step():
    sizes = torch.ops.dsv4_npu_ops.step_sizes
    assert sizes(int32(126, 0, 7), None, int32(6, 5, 0), 3, 0) == (11, 2, 1)
    assert sizes(int32(300, 9), torch.tensor([100, 9]), None, 0, 0) == (200, 50, 2)
    assert sizes(int32(4, 0, 5), None, None, 1, 0) == (3, 1, 0)
    assert sizes(int32(), None, None, 2, 4) == (0, 0, 0)
    with pytest.raises(ValueError, match=r"step_sizes: seq_lens\[1\] is 3, expected at least prefix_lens\[1\] = 4"):
        sizes(int32(5, 3), int32(1, 4), None, 0, 0)
    torch.library.opcheck(
        sizes.default, (int32(5, 3), int32(1, 0), None, 0, 0), test_utils=("test_schema", "test_faketensor")
    )


def test_a_device_needs_num_tokens():
    tables = filled_tables(make_layout(), 0, "cpu")
    lens = torch.zeros(2, dtype=torch.int32, device="meta")
    with pytest.raises(ValueError, match="num_tokens is None, expected a number: lengths on meta are not read"):
        dsv4_npu_ops.build_compress_metadata_prefill(tables, lens, lens, lens)


def test_forms_and_operands_go_together():
    tables, two = filled_tables(make_layout(), 0, "cpu"), int32(0, 1)
    op, sizes = torch.ops.dsv4_npu_ops.compress_metadata, (0, 4, 300, 16, 20, 300)
    for prefix, widths, form, message in (
        (None, None, 0, "prefix_lens is None, expected a tensor for form 0"),
        (two, None, 1, "prefix_lens is a tensor, expected None for form 1"),
        (None, two, 2, "num_draft_tokens is a tensor, expected None for form 2"),
        (None, None, 3, "num_draft_tokens is None, expected a tensor for form 3"),
        (None, None, 4, "form is 4, expected 0 (prefill), 1 (decode), 2 (verify) or 3 (ragged verify)"),
    ):
        with pytest.raises(ValueError) as error:
            op(*tables.in_order()[1:], two, two, prefix, widths, form, *sizes)
        assert message in str(error.value)


def test_negative_buffer_sizes():
    with pytest.raises(ValueError, match="num_rows, num_tokens and max_seq_len are 2, -1 and None, expected at least"):
        CompressMetadata.empty(make_layout(), 2, -1)


@pytest.mark.one_variant
@pytest.mark.parametrize("form", range(4))
@pytest.mark.parametrize("missing", [(), ("c4", "swa")])
def test_opcheck(device, form, missing):
    layout = make_layout()
    layout.num_pages.update({})
    for pool in missing:
        del layout.num_pages[pool]
    tables = filled_tables(layout, 0, device)
    requests, lens = int32(0, 3).to(device), torch.tensor([130, 7], device=device)
    prefix = int32(100, 0).to(device) if form == 0 else None
    widths = int32(2, 3).to(device) if form == 3 else None
    inputs = (*tables.in_order()[1:], requests, lens, prefix, widths, form, 4 if form == 2 else 0)
    sizes = (300, 16, 20, 300)
    opcheck(torch.ops.dsv4_npu_ops.compress_metadata.default, (*inputs, 40, *sizes))
    out = poisoned(layout, 2, 40)
    buffers = {f.name: getattr(out, f.name) for f in dataclasses.fields(out)}
    opcheck(torch.ops.dsv4_npu_ops.compress_metadata.out, (*inputs, *sizes), buffers)

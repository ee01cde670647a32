"""Verify bundle against its oracle: uniform and ragged, exact and fixed sizes, both overloads."""

import dataclasses

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from ops.step_inputs import POOLS, filled_tables, steps
from reference.verify_bundle import verify_bundle as oracle

import dsv4_npu_ops
from dsv4_npu_ops import OutCacheLoc, flatten_verify_bundle

FORMS = ("verify", "ragged")


def widths_of(step):
    return [step.width] * len(step.requests) if step.form == "verify" else step.operands


def expect(step, **keywords):
    return oracle(step.rows, step.requests, step.lengths, widths_of(step), **keywords)


def build(step, device, **keywords):
    requests, lengths, _ = step.tensors(device)
    return flatten_verify_bundle(step.tables, requests, lengths, step.num_draft_tokens(device), **keywords)


def assert_equal(got, want):
    for field in dataclasses.fields(got):
        tensor = getattr(got, field.name)
        assert tensor.dtype == torch.int32, field.name
        assert tensor.tolist() == want[field.name], field.name


def poisoned(layout, rows, tokens):
    buffers = OutCacheLoc.empty(layout, rows, tokens)
    for tensor in buffers.in_order():
        tensor.fill_(-77)
    return buffers


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_new_outputs_equal_the_oracle(device, form, data):
    step = data.draw(steps(device, (form,)))
    tokens = data.draw(st.sampled_from([None, sum(widths_of(step)) + 5]))
    assert_equal(build(step, device, num_tokens=tokens), expect(step, num_tokens=tokens))


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_host_lengths_make_group_slots_exact(device, form, data):
    step = data.draw(steps(device, (form,)))
    _, lengths, widths = step.tensors("cpu")
    host = dict(seq_lens_cpu=lengths.to(data.draw(st.sampled_from([torch.int32, torch.int64]))))
    if form == "ragged":
        host["num_draft_tokens_cpu"] = widths
    assert_equal(build(step, device, **host), expect(step, capacities="exact"))


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_buffers_are_overwritten_to_the_last_entry(device, form, data):
    step = data.draw(steps(device, (form,)))
    tokens = sum(widths_of(step)) + data.draw(st.integers(0, 40))
    out = poisoned(step.layout, len(step.requests), tokens)
    assert build(step, device, out=out) is out
    assert_equal(out, expect(step, num_tokens=tokens))


@given(data=st.data())
def test_group_buffers_of_any_size(device, data):
    step = data.draw(steps(device, FORMS))
    need = {pool: len(expect(step, capacities="exact")[f"out_{pool}_loc"]) for pool in ("c4", "c128")}
    sizes = {pool: need[pool] + data.draw(st.integers(0, 3)) for pool in need}
    out = poisoned(step.layout, len(step.requests), sum(widths_of(step)))
    for pool, size in sizes.items():
        if step.rows[pool] is not None:
            setattr(out, f"out_{pool}_loc", torch.full((size,), -77, dtype=torch.int32, device=device))
    build(step, device, out=out)
    assert_equal(out, expect(step, capacities=sizes))


@given(data=st.data())
def test_entries_are_nothing_but_table_entries(device, data):
    """Every live token's slot is its table entry, whatever else the step holds (invariant 5)."""
    step = data.draw(steps(device, FORMS))
    before = [table.clone() for table in step.tables.in_order()]
    got = build(step, device)
    begin = 0
    for request, length, width in zip(step.requests, step.lengths, widths_of(step), strict=True):
        for pool in ("full", "swa", "c4_state", "c128_state"):
            if step.rows[pool] is not None:
                loc = getattr(got, f"out_{pool}_loc")[begin : begin + width]
                if length == 0 or width == 0:
                    assert not loc.any()
                else:
                    assert torch.equal(loc, getattr(step.tables, pool)[request, length : length + width])
        begin += width
    assert all(torch.equal(a, b) for a, b in zip(before, step.tables.in_order(), strict=True))


def make_tables(**changes):
    arguments = dict(page_size=16, sliding_window=20, max_requests=4, max_context_len=300) | changes
    layout = dsv4_npu_ops.KVLayout(**arguments, num_pages={pool: 8 for pool in POOLS})
    return filled_tables(layout, 0, "cpu")


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


BAD_ARGUMENTS = [
    (dict(widths=-1), "num_draft_tokens is -1, expected at least 0"),
    (dict(widths=int32(1)), "num_draft_tokens has shape [1], expected [2]"),
    (dict(lens=torch.zeros(2)), "seq_lens has dtype Float, expected Int or Long"),
    (dict(requests=int32(0, 0, 0, 0)[::2]), "req_pool_indices has strides [2]"),
    (dict(full=torch.zeros(4, 300)), "tables.full has dtype Float, expected Int"),
    (dict(full=torch.zeros(3, 300, dtype=torch.int32)), "tables.full has 3 rows, expected 4 like the other tables"),
    (dict(swa=torch.zeros(4, 9, dtype=torch.int32)), "tables.swa has 9 columns, expected at least 300"),
    (dict(c4=torch.zeros(4, 74, dtype=torch.int32)), "tables.c4 has 74 columns, expected at least 75"),
    (dict(c128_state=torch.zeros(4, 600, dtype=torch.int32)[:, ::2]), "tables.c128_state has strides [600, 2]"),
    (dict(out_full_loc=torch.zeros(40)), "out.out_full_loc has dtype Float, expected Int"),
    (dict(out_swa_loc=int32(0)), "out.out_swa_loc has shape [1], expected [40]"),
    (dict(out_c4_state_loc=torch.zeros(41, dtype=torch.int32)), "out.out_c4_state_loc has shape [41], expected [40]"),
    (dict(out_c128_state_loc=torch.zeros(80, dtype=torch.int32)[::2]), "out.out_c128_state_loc has strides [2]"),
]

# What a device cannot know before it runs.
BAD_VALUES = [
    (dict(lens=int32(5, -1)), "seq_lens[1] is -1, expected at least 0"),
    (dict(widths=int32(1, -2)), "num_draft_tokens[1] is -2, expected at least 0"),
    (
        dict(lens=int32(297, 5)),
        "seq_lens[0] is 297 before 4 new tokens, expected at most 300 (tables.layout.max_context_len) with",
    ),
    (dict(requests=int32(0, 4)), "req_pool_indices[1] is 4, expected 0 <= index < 4 (rows of the tables)"),
    (dict(widths=int32(40, 1)), "num_tokens is 40 (entries of the token-aligned outputs), but row 1 ends at token 40"),
    (
        dict(out_c4_loc=int32(0)),
        "out.out_c4_loc has 1 entries, expected at least 2 (groups of 4 that the step completes)",
    ),
    (
        dict(lens=int32(124, 6), out_c128_loc=int32()),
        "out.out_c128_loc has 0 entries, expected at least 1 (groups of 128",
    ),
]


@pytest.mark.parametrize(
    "bad, message", [*BAD_ARGUMENTS, *(pytest.param(*case, marks=pytest.mark.cpu_only) for case in BAD_VALUES)]
)
def test_bad_calls_raise_and_write_nothing(bad, message):
    tables = make_tables()
    out = poisoned(tables.layout, 2, 40)
    for name, value in bad.items():
        if name in POOLS:
            setattr(tables, name, value)
        elif name.startswith("out_"):
            setattr(out, name, value)
    before = [tensor.clone() for tensor in out.in_order()]
    requests, lens, widths = bad.get("requests", int32(0, 1)), bad.get("lens", int32(5, 6)), bad.get("widths", 4)
    with pytest.raises(ValueError) as error:
        flatten_verify_bundle(tables, requests, lens, widths, out=out)
    assert f"flatten_verify_bundle: {message}" in str(error.value)
    assert all(torch.equal(a, b) for a, b in zip(before, out.in_order(), strict=True))


@pytest.mark.cpu_only
def test_bad_host_numbers():
    tables, two = make_tables(), int32(5, 6)
    with pytest.raises(ValueError, match=r"flatten_verify_bundle: num_tokens is 7 .*, but row 1 ends at token 4 . 4"):
        flatten_verify_bundle(tables, int32(0, 1), two, 4, num_tokens=7)
    with pytest.raises(ValueError, match="flatten_verify_bundle: num_tokens is -1, expected at least 0"):
        flatten_verify_bundle(tables, int32(0, 1), two, 4, num_tokens=-1)
    with pytest.raises(ValueError, match="flatten_verify_bundle: out_c4_loc has 0 entries, expected at least 2"):
        flatten_verify_bundle(tables, int32(0, 1), two, 4, seq_lens_cpu=int32(0, 0))
    with pytest.raises(ValueError, match=r"flatten_verify_bundle: seq_lens\[1\] is -6, expected at least 0"):
        flatten_verify_bundle(tables, int32(0, 1), two, 4, seq_lens_cpu=int32(5, -6))
    with pytest.raises(ValueError, match="seq_lens_cpu is on meta, expected a host copy"):
        flatten_verify_bundle(tables, int32(0, 1), two, 4, seq_lens_cpu=two.to("meta"))
    with pytest.raises(ValueError, match="num_draft_tokens is on meta, expected a host copy"):
        flatten_verify_bundle(tables, int32(0, 1), two, two.to("meta"), seq_lens_cpu=two)
    with pytest.raises(ValueError, match="num_tokens is None, expected a number: lengths on meta are not read"):
        flatten_verify_bundle(tables, int32(0, 1), two.to("meta"), two.to("meta"))
    with pytest.raises(ValueError, match="num_rows and num_tokens are -1 and 4, expected at least 0"):
        OutCacheLoc.empty(tables.layout, -1, 4)


@pytest.mark.one_variant
@pytest.mark.parametrize("widths", [None, (2, 3)])
def test_opcheck(device, widths):
    tables = make_tables()
    requests, lens = int32(0, 3).to(device), torch.tensor([126, 7], device=device)
    ragged = None if widths is None else int32(*widths).to(device)
    inputs = (*tables.in_order(), requests, lens, ragged, 0 if widths else 4)
    opcheck(torch.ops.dsv4_npu_ops.verify_bundle.default, (*inputs, 8, 3, 2, 300))
    out = poisoned(tables.layout, 2, 8)
    buffers = {f.name: getattr(out, f.name) for f in dataclasses.fields(out)}
    opcheck(torch.ops.dsv4_npu_ops.verify_bundle.out, (*inputs, 300), buffers)

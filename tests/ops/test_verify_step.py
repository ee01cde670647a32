"""The one op for a verify step against its oracle and against the ops that it joins."""

import dataclasses

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from ops.step_inputs import POOLS, filled_tables, steps
from reference.verify_step import verify_step as oracle

import dsv4_npu_ops
from dsv4_npu_ops import VerifyStep, build_verify_step

FORMS = ("verify", "ragged")
RATIO = dict(swa=1, c4=4, c128=128, c4_state=1, c128_state=1)
ROPE = ("c4_cos", "c4_sin", "c128_cos", "c128_sin")


def rope_tables(max_pos, dim, device):
    generator = torch.Generator().manual_seed(max_pos)
    return [torch.randn(max_pos, dim, generator=generator).to(device) for _ in range(2)]


def widths_of(step):
    return [step.width] * len(step.requests) if step.form == "verify" else step.operands


def page_widths(layout, length):
    return {pool: max(1, (length // r + layout.page_size - 1) // layout.page_size) for pool, r in RATIO.items()}


def fields_of(step):
    """Every tensor of a VerifyStep under its name."""
    tensors = {name: getattr(step, name) for name in ROPE}
    for part in (step.out_cache_loc, step.metadata):
        tensors |= {f.name: getattr(part, f.name) for f in dataclasses.fields(part)}
    return tensors


def expect(step, cos, sin, columns, num_tokens=None):
    return oracle(
        step.rows,
        step.requests,
        step.lengths,
        widths_of(step),
        cos.tolist(),
        sin.tolist(),
        page=step.layout.page_size,
        window=step.layout.sliding_window,
        columns=columns,
        num_tokens=num_tokens,
    )


def assert_equal(got, want):
    tensors = fields_of(got)
    assert tensors.keys() == want.keys()
    for name, tensor in tensors.items():
        assert tensor.tolist() == want[name], name


def poisoned(layout, rows, tokens, rope_dim, length=None):
    buffers = VerifyStep.empty(layout, rows, tokens, rope_dim, length)
    for tensor in fields_of(buffers).values():
        tensor.fill_(-77)
    return buffers


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data(), dim=st.sampled_from([0, 1, 2, 8, 64]))
def test_both_overloads_equal_the_oracle(device, form, data, dim):
    step = data.draw(steps(device, (form,)))
    cos, sin = rope_tables(step.layout.max_context_len, dim, device)
    requests, lengths, _ = step.tensors(device)
    arguments = (step.tables, requests, lengths, step.num_draft_tokens(device), cos, sin)
    columns = page_widths(step.layout, step.layout.max_context_len)
    assert_equal(build_verify_step(*arguments), expect(step, cos, sin, columns))

    tokens = sum(widths_of(step)) + data.draw(st.integers(0, 30))
    length = max(step.finals(), default=0) + data.draw(st.sampled_from([0, 1, 300]))
    want = expect(step, cos, sin, page_widths(step.layout, length), tokens)
    assert_equal(build_verify_step(*arguments, num_tokens=tokens, max_seq_len=length), want)
    out = poisoned(step.layout, len(step.requests), tokens, dim, length)
    assert build_verify_step(*arguments, max_seq_len=length, out=out) is out
    assert_equal(out, want)


@given(data=st.data())
def test_equals_the_ops_that_it_joins(device, data):
    step = data.draw(steps(device, FORMS))
    cos, sin = rope_tables(step.layout.max_context_len, 4, device)
    requests, lengths, _ = step.tensors(device)
    rows = (step.tables, requests, lengths, step.num_draft_tokens(device))
    got = fields_of(build_verify_step(*rows, cos, sin))
    loc = dsv4_npu_ops.flatten_verify_bundle(*rows)
    metadata = dsv4_npu_ops.build_compress_metadata_verify(*rows)
    for part in (loc, metadata):
        for field in dataclasses.fields(part):
            assert torch.equal(got[field.name], getattr(part, field.name)), field.name
    for pool in ("c4", "c128"):
        rope = dsv4_npu_ops.rope_gather(cos, sin, getattr(metadata, f"positions_{pool}"))
        assert torch.equal(got[f"{pool}_cos"], rope[0]) and torch.equal(got[f"{pool}_sin"], rope[1])


def make_tables():
    layout = dsv4_npu_ops.KVLayout(
        page_size=16, sliding_window=20, max_requests=4, max_context_len=300, num_pages={pool: 8 for pool in POOLS}
    )
    return filled_tables(layout, 0, "cpu")


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("dim", [0, 4])
def test_an_idle_replay_leaves_nothing_of_the_step_before(dim):
    tables = make_tables()
    cos, sin = rope_tables(300, dim, "cpu")
    out = poisoned(tables.layout, 2, 8, dim)
    build_verify_step(tables, int32(0, 1), int32(126, 10), 4, cos, sin, out=out)
    assert out.metadata.positions_c4.tolist() == [124, 8, 0, 0]
    build_verify_step(tables, int32(0, 1), int32(0, 0), 4, cos, sin, out=out)
    tensors = fields_of(out)
    for name in ("positions_c4", "positions_c128", "positions", "c4_loc", "c128_loc", "start_pos", "seqused"):
        assert not tensors[name].any(), name
    assert all(not tensor.any() for tensor in out.out_cache_loc.in_order())
    assert out.metadata.kv_lens.tolist() == [1, 1]
    assert out.metadata.swa_page_table.tolist() == [[0] + [-1] * 18] * 2
    assert torch.equal(out.c4_cos, cos[:1].expand(4, -1)) and torch.equal(out.c128_sin, sin[:1].expand(2, -1))


BAD_ARGUMENTS = [
    (dict(widths=-1), ValueError, "num_draft_tokens is -1, expected at least 0"),
    (dict(cos=torch.zeros(8), sin=torch.zeros(8)), ValueError, "rope_cos has shape [8], expected 2 dimensions"),
    (dict(cos=torch.zeros(0, 4), sin=torch.zeros(0, 4)), ValueError, "rope_cos has shape [0, 4], expected at least 1"),
    (dict(cos=torch.zeros(300, 4).half()), ValueError, "rope_cos has dtype Half, expected Float"),
    (dict(cos=torch.zeros(300, 8)[:, ::2]), ValueError, "rope_cos has strides [8, 2]"),
    (dict(sin=torch.zeros(299, 4)), ValueError, "rope_sin has shape [299, 4], expected [300, 4]"),
    (dict(sin=torch.zeros(300, 8)[:, ::2]), ValueError, "rope_sin has strides [8, 2]"),
    (dict(c4_cos=torch.zeros(12, 5)), ValueError, "out.c4_cos has shape [12, 5], expected [12, 4]"),
    (dict(c4_sin=torch.zeros(12, 4).half()), ValueError, "out.c4_sin has dtype Half, expected Float"),
    (dict(c128_cos=torch.zeros(3, 4)), ValueError, "out.c128_cos has shape [3, 4], expected [2, 4]"),
    (dict(c128_sin=torch.zeros(2, 8)[:, ::2]), ValueError, "out.c128_sin has strides [8, 2]"),
    (dict(out_swa_loc=int32(0)), ValueError, "out.out_cache_loc.out_swa_loc has shape [1], expected [40]"),
    (dict(c4_loc=int32(0)), ValueError, "out.metadata.c4_loc has shape [1], expected [12]"),
    (dict(positions=torch.zeros(40, 1)), ValueError, "out.metadata.positions has shape [40, 1], expected 1 dimension"),
    (dict(kv_lens=int32(0)), ValueError, "out.metadata.kv_lens has shape [1], expected [2]"),
    (dict(swa_page_table=int32()), ValueError, "out.metadata.swa_page_table has shape [0], expected 2 dimensions"),
    (dict(full=torch.zeros(3, 300, dtype=torch.int32)), ValueError, "tables.full has 3 rows, expected 4"),
    (dict(page_size=3), ValueError, "tables.page_size is 3, expected a power of two"),
]

# What a device cannot know before it runs.
BAD_VALUES = [
    (dict(lens=int32(5, -1)), ValueError, "seq_lens[1] is -1, expected at least 0"),
    (dict(requests=int32(0, 4)), ValueError, "req_pool_indices[1] is 4, expected 0 <= index < 4"),
    (dict(lens=int32(5, 297)), ValueError, "seq_lens[1] is 297 before 4 new tokens, expected at most 300"),
    (dict(max_seq_len=7), ValueError, "max_seq_len is 7, expected at least 9 (tokens of row 0 after the step)"),
    (
        dict(cos=torch.zeros(5, 4), sin=torch.zeros(5, 4), lens=int32(6, 9)),
        IndexError,
        "out.metadata.positions_c4 reaches 8, expected 0 <= position < 5 (rows of rope_cos)",
    ),
    (
        dict(cos=torch.zeros(128, 4), sin=torch.zeros(128, 4), lens=int32(252, 0)),
        IndexError,
        "out.metadata.positions_c4 reaches 252, expected 0 <= position < 128 (rows of rope_cos)",
    ),
    (
        dict(out_c4_loc=int32(0)),
        ValueError,
        "out.out_cache_loc.out_c4_loc has 1 entries, expected at least 2 (groups of 4",
    ),
]


@pytest.mark.parametrize(
    "bad, kind, message", [*BAD_ARGUMENTS, *(pytest.param(*case, marks=pytest.mark.cpu_only) for case in BAD_VALUES)]
)
def test_bad_calls_raise_and_write_nothing(bad, kind, message):
    tables = make_tables()
    out = poisoned(tables.layout, 2, 40, 4)
    for name, value in bad.items():
        for owner in (tables, out, out.out_cache_loc, out.metadata):
            if hasattr(owner, name):
                setattr(owner, name, value)
    before = {name: tensor.clone() for name, tensor in fields_of(out).items()}
    cos, sin = bad.get("cos", torch.zeros(300, 4)), bad.get("sin", torch.zeros(300, 4))
    requests, lens, widths = bad.get("requests", int32(0, 1)), bad.get("lens", int32(5, 6)), bad.get("widths", 4)
    with pytest.raises(kind) as error:
        build_verify_step(tables, requests, lens, widths, cos, sin, max_seq_len=bad.get("max_seq_len"), out=out)
    assert f"build_verify_step: {message}" in str(error.value)
    for name, tensor in fields_of(out).items():
        assert torch.equal(before[name], tensor), name


@pytest.mark.cpu_only
def test_bad_sizes():
    tables = make_tables()
    cos, sin = rope_tables(300, 4, "cpu")
    with pytest.raises(ValueError, match=r"build_verify_step: num_tokens is 7 .*, but row 1 ends at token 4 . 4"):
        build_verify_step(tables, int32(0, 1), int32(5, 6), 4, cos, sin, num_tokens=7)
    with pytest.raises(ValueError, match="build_verify_step: num_tokens is None, expected a number: lengths on meta"):
        build_verify_step(tables, int32(0, 1), int32(5, 6).to("meta"), int32(4, 4).to("meta"), cos, sin)
    with pytest.raises(ValueError, match=r"VerifyStep\.empty: rope_dim is -1, expected at least 0"):
        VerifyStep.empty(tables.layout, 2, 8, -1)


@pytest.mark.one_variant
@pytest.mark.parametrize("widths", [None, (2, 3)])
def test_opcheck(device, widths):
    tables = make_tables()
    cos, sin = rope_tables(300, 4, device)
    requests, lens = int32(0, 3).to(device), torch.tensor([126, 7], device=device)
    ragged = None if widths is None else int32(*widths).to(device)
    inputs = (*tables.in_order(), requests, lens, ragged, cos, sin, 0 if widths else 4)
    sizes = (300, 16, 20, 300)
    opcheck(torch.ops.dsv4_npu_ops.verify_step.default, (*inputs, 8, *sizes))
    out = fields_of(poisoned(tables.layout, 2, 8, 4))
    opcheck(torch.ops.dsv4_npu_ops.verify_step.out, (*inputs, *sizes), out)

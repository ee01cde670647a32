"""Compress metadata, verify bundle and verify step: the forms of a step that have result types of their own."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ops.step_inputs import FORMS, Step, filled_tables, plain_pools, steps
from reference.step import POOLS, capacity, completed_groups, step_oracle

import dsv4_npu_ops
from dsv4_npu_ops import (
    CompressMetadata,
    KVLayout,
    OutCacheLoc,
    RequestTables,
    VerifyStep,
    build_verify_step,
    flatten_verify_bundle,
    rope_gather,
)

INT64_FIELDS = ("positions_c4", "positions_c128", "positions")
VERIFY_FORMS = ("verify", "ragged")
TOKEN_POOLS = ("full", "swa", "c4_state", "c128_state")
POISON = -77


def build_metadata(step, device, **keywords):
    requests, lengths, operands = step.tensors(device)
    if step.form == "prefill":
        return dsv4_npu_ops.build_compress_metadata_prefill(step.tables, requests, operands, lengths, **keywords)
    if step.form == "decode":
        keywords.pop("num_tokens", None)
        return dsv4_npu_ops.build_compress_metadata_decode(step.tables, requests, lengths, **keywords)
    return dsv4_npu_ops.build_compress_metadata_verify(
        step.tables, requests, lengths, step.num_draft_tokens(device), **keywords
    )


def build_bundle(step, device, **keywords):
    requests, lengths, _ = step.tensors(device)
    return flatten_verify_bundle(step.tables, requests, lengths, step.num_draft_tokens(device), **keywords)


def expect(step, *, num_tokens=None, length=None, rope=None, groups=None):
    """Every field that a wrapper returns, by the name in its result; what no pool gives is empty. rope: cos and sin."""
    tokens = step.total() if num_tokens is None else num_tokens
    columns = step.page_widths(step.layout.max_context_len if length is None else length)
    caps = {f"c{r}": capacity(tokens, len(step.requests), r) for r in (4, 128)} | (groups or {})
    sizes = {name: tokens for name in ("positions", "start_pos", "seqused", "kv_lens", "cu_seqlens")}
    for name, cap in caps.items():
        sizes[f"positions_{name}"] = cap
        if rope is not None:
            sizes |= {f"{name}_cos": cap, f"{name}_sin": cap}
        if name in step.pools:
            sizes[f"out_{name}_loc"] = cap
    for pool in step.pools:
        if pool in TOKEN_POOLS:
            sizes[f"out_{pool}_loc"] = tokens
        if pool != "full":
            sizes[f"{pool}_page_table"] = columns[pool]
    cos, sin = (None, None) if rope is None else (table.tolist() for table in rope)
    window = step.layout.sliding_window
    want = step_oracle(step.pools, step.requests, step.rows(), sizes, window=window, cos=cos, sin=sin)
    for pool in POOLS:
        want.setdefault(f"out_{pool}_loc", [])
        want.setdefault(f"{pool}_page_table", [[]] * len(step.requests))
    return want | {f"{pool}_loc": want[f"out_{pool}_loc"] for pool in ("c4", "c128")}


def tensors_of(result):
    """Every tensor of a result under its name."""
    tensors = {}
    for field in dataclasses.fields(result):
        value = getattr(result, field.name)
        if value is None:
            continue
        tensors |= {field.name: value} if isinstance(value, torch.Tensor) else tensors_of(value)
    return tensors


def assert_equal(got, want):
    for name, tensor in tensors_of(got).items():
        rope = name.endswith(("_cos", "_sin"))
        wanted_type = torch.float32 if rope else torch.int64 if name in INT64_FIELDS else torch.int32
        assert tensor.dtype == wanted_type, name
        assert tensor.tolist() == want[name], name


def poisoned(result):
    for tensor in tensors_of(result).values():
        tensor.fill_(POISON)
    return result


def rope_tables(max_pos, dim, device):
    generator = torch.Generator().manual_seed(max_pos)
    return [torch.randn(max_pos, dim, generator=generator).to(device) for _ in range(2)]


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_metadata(device, form, data):
    step = data.draw(steps(device, (form,)))
    tokens = None
    if form != "decode" and data.draw(st.booleans()):
        tokens = step.total() + data.draw(st.integers(0, 5))
    length = data.draw(st.sampled_from([None, step.longest(), step.longest() + 70]))
    got = build_metadata(step, device, num_tokens=tokens, max_seq_len=length)
    assert_equal(got, expect(step, num_tokens=tokens, length=length))

    tokens, length = step.total() + data.draw(st.integers(0, 40)), step.longest() + data.draw(st.sampled_from([0, 300]))
    out = poisoned(CompressMetadata.empty(step.layout, len(step.requests), tokens, length))
    assert build_metadata(step, device, out=out) is out
    assert_equal(out, expect(step, num_tokens=tokens, length=length))


@pytest.mark.parametrize("form", VERIFY_FORMS)
@given(data=st.data())
def test_bundle(device, form, data):
    step = data.draw(steps(device, (form,)))
    tokens = data.draw(st.sampled_from([None, step.total() + 5]))
    assert_equal(build_bundle(step, device, num_tokens=tokens), expect(step, num_tokens=tokens))

    tokens = step.total() + data.draw(st.integers(0, 40))
    out = poisoned(OutCacheLoc.empty(step.layout, len(step.requests), tokens))
    assert build_bundle(step, device, out=out) is out
    assert_equal(out, expect(step, num_tokens=tokens))


@pytest.mark.parametrize("form", VERIFY_FORMS)
@given(data=st.data())
def test_host_lengths_make_group_slots_exact(device, form, data):
    step = data.draw(steps(device, (form,)))
    _, lengths, widths = step.tensors("cpu")
    host = dict(seq_lens_cpu=lengths.to(data.draw(st.sampled_from([torch.int32, torch.int64]))))
    if form == "ragged":
        host["num_draft_tokens_cpu"] = widths
    exact = {f"c{r}": sum(len(completed_groups(s, n, r)) for s, n, _ in step.rows()) for r in (4, 128)}
    assert_equal(build_bundle(step, device, **host), expect(step, groups=exact))


@pytest.mark.parametrize("form", VERIFY_FORMS)
@given(data=st.data(), dim=st.sampled_from([0, 1, 2, 8, 64]))
def test_verify_step(device, form, data, dim):
    step = data.draw(steps(device, (form,)))
    rope = rope_tables(step.layout.max_context_len, dim, device)
    requests, lengths, _ = step.tensors(device)
    arguments = (step.tables, requests, lengths, step.num_draft_tokens(device), *rope)
    assert_equal(build_verify_step(*arguments), expect(step, rope=rope))

    tokens, length = step.total() + data.draw(st.integers(0, 30)), step.longest() + data.draw(st.sampled_from([0, 300]))
    want = expect(step, num_tokens=tokens, length=length, rope=rope)
    assert_equal(build_verify_step(*arguments, num_tokens=tokens, max_seq_len=length), want)
    out = poisoned(VerifyStep.empty(step.layout, len(step.requests), tokens, dim, length))
    assert build_verify_step(*arguments, out=out) is out
    assert_equal(out, want)


@given(data=st.data())
def test_a_verify_step_equals_what_it_joins(device, data):
    step = data.draw(steps(device, VERIFY_FORMS))
    rope = rope_tables(step.layout.max_context_len, 4, device)
    requests, lengths, _ = step.tensors(device)
    rows = (step.tables, requests, lengths, step.num_draft_tokens(device))
    got = tensors_of(build_verify_step(*rows, *rope))
    metadata = dsv4_npu_ops.build_compress_metadata_verify(*rows)
    for part in (flatten_verify_bundle(*rows), metadata):
        for name, tensor in tensors_of(part).items():
            assert torch.equal(got[name], tensor), name
    for pool in ("c4", "c128"):
        cos, sin = dsv4_npu_ops.rope_gather(*rope, getattr(metadata, f"positions_{pool}"))
        assert torch.equal(got[f"{pool}_cos"], cos) and torch.equal(got[f"{pool}_sin"], sin)


def make_layout(**changes):
    arguments = dict(page_size=16, sliding_window=20, max_requests=4, max_context_len=300) | changes
    return dsv4_npu_ops.KVLayout(**arguments, num_pages={pool: 8 for pool in POOLS})


def long_verify(device, rows, context, lengths):
    layout = make_layout(page_size=1, max_requests=rows, max_context_len=context, sliding_window=300)
    tables = filled_tables(layout, 0, device)
    dtypes = (torch.int32,) * 3
    return Step("verify", layout, tables, plain_pools(tables), list(range(rows)), lengths, [0] * rows, 3, dtypes)


@pytest.mark.cpu_only
def test_page_tables_that_are_written_by_several_threads():
    """40 rows of 8192 columns in three tables: more entries than one thread takes."""
    step = long_verify("cpu", 40, 8192, [(i * 997) % 8189 for i in range(40)])
    assert_equal(build_metadata(step, "cpu"), expect(step))


def test_pages_of_one_slot_that_fill_several_tiles(device):
    """A padding row, and windows that start in the first tile and at a tile's last entry."""
    step = long_verify(device, 4, 2500, [700, 0, 2490, 1023 + 299])
    assert_equal(build_metadata(step, device), expect(step))


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("dim", [0, 4])
def test_an_idle_replay_leaves_nothing_of_the_step_before(device, dim):
    layout = make_layout()
    tables = filled_tables(layout, 0, device)
    cos, sin = rope_tables(300, dim, device)
    out = poisoned(VerifyStep.empty(layout, 2, 8, dim))
    requests = int32(0, 1).to(device)
    build_verify_step(tables, requests, int32(126, 10).to(device), 4, cos, sin, out=out)
    assert out.metadata.positions_c4.tolist() == [124, 8, 0, 0]
    build_verify_step(tables, requests, int32(0, 0).to(device), 4, cos, sin, out=out)
    tensors = tensors_of(out)
    for name in ("positions_c4", "positions_c128", "positions", "c4_loc", "c128_loc", "start_pos", "seqused"):
        assert not tensors[name].any(), name
    assert all(not tensor.any() for tensor in out.out_cache_loc.in_order())
    assert out.metadata.kv_lens.tolist() == [1, 1]
    assert out.metadata.swa_page_table.tolist() == [[0] + [-1] * 18] * 2
    assert torch.equal(out.c4_cos, cos[:1].expand(4, -1)) and torch.equal(out.c128_sin, sin[:1].expand(2, -1))


@pytest.mark.parametrize("form", VERIFY_FORMS)
@given(data=st.data())
def test_a_verify_step_has_rows_of_the_bases_that_are_given(device, form, data):
    step = data.draw(steps(device, (form,)))
    context = step.layout.max_context_len
    rope, main = rope_tables(context, 2, device), [t.bfloat16() for t in rope_tables(context + 3, 6, device)]
    bases = {base: table for base, table in (("main", main), ("compress", rope)) if data.draw(st.booleans())}
    named = {f"{base}_rope": tuple(table) for base, table in bases.items()}
    requests, lengths, _ = step.tensors(device)
    arguments = (step.tables, requests, lengths, step.num_draft_tokens(device), *rope)
    plain = build_verify_step(*arguments, num_tokens=step.total() + 3)
    out = poisoned(VerifyStep.empty(step.layout, len(step.requests), step.total() + 3, 2, **named))
    assert build_verify_step(*arguments, **named, out=out) is out
    fresh = build_verify_step(*arguments, **named, num_tokens=step.total() + 3)
    for base in ("main", "compress"):
        rows = rope_gather(*bases[base], plain.metadata.positions) if base in bases else (None, None)
        for name, want in zip(("cos", "sin"), rows, strict=True):
            for got in (getattr(out, f"{base}_{name}"), getattr(fresh, f"{base}_{name}")):
                assert (got is None) == (want is None)
                assert want is None or torch.equal(got, want)


def test_a_buffer_for_the_rows_of_a_base_is_asked_for(device):
    layout = KVLayout(4, 8, 1, 8, {"swa": 2}, device)
    rope = torch.zeros(8, 2, device=device)
    out = VerifyStep.empty(layout, 1, 1, 2, compress_rope=(rope, rope))
    with pytest.raises(ValueError, match=r"^build_verify_step: out\.main_cos is None, expected a buffer for the rows"):
        lengths = torch.tensor([3], device=device)
        build_verify_step(RequestTables(layout), None, lengths, 1, rope, rope, main_rope=(rope, rope), out=out)


def test_slots_of_groups_are_one_tensor():
    layout = make_layout()
    out = VerifyStep.empty(layout, 2, 8, 4)
    assert out.out_cache_loc.out_c4_loc is out.metadata.c4_loc
    assert out.out_cache_loc.out_c128_loc is out.metadata.c128_loc
    out.metadata.c128_loc = out.metadata.c128_loc.clone()
    cos, sin = rope_tables(300, 4, "cpu")
    with pytest.raises(ValueError, match="out has an out_c128_loc and another c128_loc, expected one tensor for both"):
        build_verify_step(filled_tables(layout, 0, "cpu"), int32(0, 1), int32(5, 6), 4, cos, sin, out=out)

"""RoPE tables against their oracle."""

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from reference import rope as oracle

import dsv4_npu_ops

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def make_freqs(max_pos, pairs, device, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(max_pos, pairs, dtype=torch.complex64, generator=generator).to(device)


@given(
    max_pos=st.integers(0, 30),
    pairs=st.integers(0, 40),
    dtype=st.sampled_from(DTYPES),
    strided=st.booleans(),
    seed=st.integers(0, 9),
)
def test_tables_equal_the_oracle(device, max_pos, pairs, dtype, strided, seed):
    freqs = make_freqs(max_pos, pairs + 3, device, seed)[:, 1 : pairs + 1]
    if not strided:
        freqs = freqs.contiguous()
    want = oracle.tables(freqs.tolist())
    out = [torch.full((max_pos, 2 * pairs), float("nan"), dtype=dtype, device=device) for _ in range(2)]

    for got in (
        dsv4_npu_ops.build_rope_tables(freqs, dtype),
        dsv4_npu_ops.build_rope_tables(freqs, out=tuple(out)),
    ):
        for table, rows in zip(got, want, strict=True):
            assert table.dtype == dtype
            assert torch.equal(table.cpu(), torch.tensor(rows).reshape(max_pos, 2 * pairs).to(dtype))


def test_pairs_are_interleaved(device):
    freqs = torch.tensor([[1 + 2j, 3 + 4j]], dtype=torch.complex64, device=device)
    cos, sin = dsv4_npu_ops.build_rope_tables(freqs, torch.float32)
    assert cos.tolist() == [[1, 1, 3, 3]]
    assert sin.tolist() == [[2, 2, 4, 4]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("max_pos, pairs", [(700, 32), (3, 2050), (40, 1023)])
def test_tables_of_several_tiles(device, dtype, max_pos, pairs):
    freqs = make_freqs(max_pos, pairs, device)
    got = dsv4_npu_ops.build_rope_tables(freqs, dtype)
    for table, part in zip(got, (freqs.real, freqs.imag), strict=True):
        assert torch.equal(table.cpu(), part.cpu().repeat_interleave(2, 1).to(dtype))


def test_repeated_rows(device):
    freqs = make_freqs(1, 3, device)
    got = dsv4_npu_ops.build_rope_tables(freqs.expand(5, 3), torch.float32)
    want = dsv4_npu_ops.build_rope_tables(freqs, torch.float32)
    assert all(torch.equal(table, row.expand(5, 6)) for table, row in zip(got, want, strict=True))


@pytest.mark.simulated_only
@pytest.mark.parametrize("dtype", DTYPES)
def test_simulated_traffic_is_what_must_move(ascend_sim, dtype):
    cos, _ = dsv4_npu_ops.build_rope_tables(make_freqs(2000, 32, "cpu"), dtype)
    (counters,) = ascend_sim.take_counters()
    assert counters["mte2_bytes"] == 2000 * 32 * 8
    assert counters["mte3_bytes"] == 2 * cos.nbytes
    # The start of an index vector: 8 elements a block.
    assert counters["ub_scalar_writes"] + counters["ub_scalar_reads"] <= 8 * counters["blocks"]
    assert counters["balance"]["most_bytes"] <= 1.1 * counters["balance"]["least_bytes"]


def test_lazy_conjugate_is_resolved(device):
    freqs = make_freqs(5, 3, device)
    cos, sin = dsv4_npu_ops.build_rope_tables(freqs.conj(), torch.float32)
    want_cos, want_sin = dsv4_npu_ops.build_rope_tables(freqs, torch.float32)
    assert torch.equal(cos, want_cos) and torch.equal(sin, -want_sin)


BAD_ARGUMENTS = [
    (dict(freqs_cis=torch.zeros(8, dtype=torch.complex64)), "freqs_cis has shape [8], expected 2 dimensions"),
    (dict(freqs_cis=torch.zeros(8, 2)), "freqs_cis has dtype Float, expected ComplexFloat"),
    (dict(freqs_cis=torch.zeros(8, 4, dtype=torch.complex64)[:, ::2]), "freqs_cis has strides [4, 2], expected"),
    (dict(dtype=torch.float64), "dtype is Double, expected Float or Half or BFloat16"),
    (dict(out=(torch.zeros(8, 4).int(), torch.zeros(8, 4))), "out[0] has dtype Int, expected Float"),
    (dict(out=(torch.zeros(8, 2), torch.zeros(8, 4))), "out[0] has shape [8, 2], expected [8, 4]"),
    (dict(out=(torch.zeros(8, 4), torch.zeros(7, 4))), "out[1] has shape [7, 4], expected [8, 4]"),
    (dict(out=(torch.zeros(8, 4), torch.zeros(8, 8)[:, ::2])), "out[1] has strides [8, 2] for shape [8, 4]"),
    (dict(out=(torch.zeros(8, 4), torch.zeros(8, 4).half())), "out[1] has dtype Half, expected Float"),
]


@pytest.mark.parametrize("bad, message", BAD_ARGUMENTS, ids=[message for _, message in BAD_ARGUMENTS])
def test_bad_arguments(bad, message):
    arguments = dict(freqs_cis=torch.zeros(8, 2, dtype=torch.complex64)) | bad
    for table in arguments.get("out", ()):
        table.fill_(7)
    with pytest.raises(ValueError) as error:
        dsv4_npu_ops.build_rope_tables(**arguments)
    assert f"build_rope_tables: {message}" in str(error.value)
    assert all((table == 7).all() for table in arguments.get("out", ()))


def test_tables_on_another_device():
    freqs, table = torch.zeros(8, 2, dtype=torch.complex64), torch.empty(8, 4, device="meta")
    op = torch.ops.dsv4_npu_ops.rope_tables.out
    with pytest.raises(ValueError, match=r"rope_tables: cos_out is on meta, expected \S+ like freqs_cis"):
        op.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), freqs, cos_out=table, sin_out=table)


@pytest.mark.one_variant
def test_opcheck(device):
    freqs = make_freqs(8, 2, device)
    opcheck(torch.ops.dsv4_npu_ops.rope_tables.default, (freqs,), {"dtype": torch.bfloat16})
    out = dict(cos_out=torch.empty(8, 4, device=device), sin_out=torch.empty(8, 4, device=device))
    opcheck(torch.ops.dsv4_npu_ops.rope_tables.out, (freqs,), out)

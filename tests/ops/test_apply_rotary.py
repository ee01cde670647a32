"""In-place rotation against its oracle, complex numbers and transformers."""

import pytest
import torch
from backends import BACKEND, opcheck
from hypothesis import given
from hypothesis import strategies as st
from reference import rope as oracle

import dsv4_npu_ops

TABLE_DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# A vector core has no float64.
DTYPES = [*TABLE_DTYPES, torch.float64] if BACKEND == "cpu" else TABLE_DTYPES


def make_rows(tokens, rope_dim, dtype, device, seed=0):
    """Rows of real tables, with unequal entries in a pair so that mixed-up columns show."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randn(tokens, rope_dim, generator=generator).to(dtype).to(device) for _ in range(2)]
    return rows[0], rows[1]


def rotated(x, cos, sin, inverse):
    """x: [T, H, head_dim]; the oracle's result in the same dtype."""
    product = float if x.dtype == torch.float64 else oracle.float32
    rows = [
        [oracle.rotate(head, c, s, inverse, product) for head in token]
        for token, c, s in zip(x.tolist(), cos.tolist(), sin.tolist(), strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64).reshape(x.shape).to(x.dtype)


def strided(shape, dtype, device, seed):
    """A tensor with gaps between tokens and heads, and the poisoned memory around it."""
    generator = torch.Generator().manual_seed(seed)
    tokens, heads, head_dim = shape
    memory = torch.full((tokens, heads + 2, head_dim + 3), 777.0, dtype=dtype)
    memory[:, 1 : heads + 1, 2 : head_dim + 2] = torch.randn(shape, generator=generator).to(dtype)
    memory = memory.to(device)
    return memory, memory[:, 1 : heads + 1, 2 : head_dim + 2]


@given(
    tokens=st.integers(0, 6),
    heads=st.integers(1, 4),
    pairs=st.integers(1, 9),
    nope=st.integers(0, 7),
    q_dtype=st.sampled_from(DTYPES),
    kv_dtype=st.sampled_from(DTYPES),
    table_dtype=st.sampled_from(TABLE_DTYPES),
    inverse=st.booleans(),
    flat_kv=st.booleans(),
    four_d=st.booleans(),
    seed=st.integers(0, 9),
)
def test_rotation_equals_the_oracle(
    device, tokens, heads, pairs, nope, q_dtype, kv_dtype, table_dtype, inverse, flat_kv, four_d, seed
):
    cos, sin = make_rows(tokens, 2 * pairs, table_dtype, device, seed)
    q_memory, q = strided((tokens, heads, nope + 2 * pairs), q_dtype, device, seed)
    kv_memory, kv = strided((tokens, 1, 2 * pairs), kv_dtype, device, seed + 1)
    want = []
    for memory, x in ((q_memory, q), (kv_memory, kv)):
        expected = memory.cpu().clone()
        window = expected[:, 1 : x.shape[1] + 1, 2 : x.shape[2] + 2]
        window.copy_(rotated(x.cpu(), cos.cpu(), sin.cpu(), inverse))
        want.append(expected)

    rows = (cos[:, None, None, :], sin[:, None, None, :]) if four_d else (cos, sin)
    dsv4_npu_ops.apply_rotary(q, kv[:, 0] if flat_kv else kv, *rows, inverse=inverse)

    assert torch.equal(q_memory.cpu(), want[0])
    assert torch.equal(kv_memory.cpu(), want[1])


@pytest.mark.parametrize("inverse", [False, True])
def test_rotation_equals_complex_multiplication(device, inverse):
    config = dict(rope_theta=10000.0, compress_rope_theta=160000.0, qk_rope_head_dim=64)
    freqs = dsv4_npu_ops.build_freqs_cis(config, 0, 1000)
    tables = [table.to(device) for table in dsv4_npu_ops.build_rope_tables(freqs, torch.float32)]
    positions = torch.tensor([0, 1, 5, 700, 999])
    cos, sin = dsv4_npu_ops.rope_gather(*tables, positions.to(device), inverse=inverse)
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(5, 3, 96, generator=generator)
    factor = freqs[positions].conj() if inverse else freqs[positions]
    product = torch.view_as_complex(q[..., 32:].reshape(5, 3, 32, 2).contiguous()) * factor[:, None]
    want = torch.cat([q[..., :32], torch.view_as_real(product).flatten(2)], -1)

    got = q.clone().to(device)
    dsv4_npu_ops.apply_rotary(got, None, cos, sin)

    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=1e-6)
    assert torch.equal(got[0].cpu(), q[0])  # position 0 rotates by nothing
    # A row gathered as inverse, the flag, and a rotation that was undone agree.
    plain = dsv4_npu_ops.rope_gather(*tables, positions.to(device))
    flagged = q.clone().to(device)
    dsv4_npu_ops.apply_rotary(None, flagged, *plain, inverse=inverse)
    assert torch.equal(flagged, got)
    dsv4_npu_ops.apply_rotary(got, None, *plain, inverse=not inverse)
    torch.testing.assert_close(got.cpu(), q, rtol=0, atol=1e-6)


def test_pairs_are_adjacent(device):
    # A quarter turn takes (a, b) to (-b, a).
    q = torch.tensor([[[9.0, 1.0, 2.0, 3.0, 4.0]]], device=device)
    cos, sin = torch.zeros(1, 4, device=device), torch.ones(1, 4, device=device)
    dsv4_npu_ops.apply_rotary(q, None, cos, sin)
    assert q.flatten().tolist() == [9, -2, 1, -4, 3]
    dsv4_npu_ops.apply_rotary(q, None, cos, sin, inverse=True)
    assert q.flatten().tolist() == [9, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotation_equals_transformers_to_the_last_bit(device, dtype):
    pytest.importorskip("transformers")
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import apply_rotary_pos_emb

    config = dict(rope_theta=10000.0, compress_rope_theta=160000.0, qk_rope_head_dim=16)
    freqs = dsv4_npu_ops.build_freqs_cis(config, 4, 500)
    # transformers casts cos and sin to the model's dtype; the widest of our tables is float32.
    cos, sin = dsv4_npu_ops.build_rope_tables(freqs, torch.float32 if dtype == torch.float64 else dtype)
    q = torch.randn(500, 3, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    kv = q[:, :1].clone()
    # transformers: [batch, heads, tokens, head_dim], and cos and sin [batch, tokens, D / 2]
    want = apply_rotary_pos_emb(q.transpose(0, 1)[None], freqs.real.to(dtype)[None], freqs.imag.to(dtype)[None])

    q, kv = q.to(device), kv.to(device)
    dsv4_npu_ops.apply_rotary(q, kv, cos.to(device), sin.to(device))

    assert torch.equal(q.cpu(), want[0].transpose(0, 1))
    assert torch.equal(kv.cpu(), want[0].transpose(0, 1)[:, :1])


def laid_out(tokens, heads, head_dim, layout, dtype):
    """Features [T, H, head_dim]; every token's heads together, every head's tokens together, or with gaps."""
    x = torch.randn(tokens, heads, head_dim, generator=torch.Generator().manual_seed(2)).to(dtype)
    if layout == "by head":
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if layout == "gaps":
        return strided(x.shape, dtype, "cpu", 2)[1]
    return x


@pytest.mark.parametrize("layout", ["by token", "by head", "gaps"])
@pytest.mark.parametrize(
    "tokens, heads, rope_dim", [(9, 16, 64), (2, 100, 64), (150, 1, 64), (7, 3, 200), (2, 3, 2032)]
)
@pytest.mark.parametrize("dtype, table_dtype", [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)])
def test_rotation_of_several_tiles(device, tokens, heads, rope_dim, layout, dtype, table_dtype):
    cos, sin = make_rows(tokens, rope_dim, table_dtype, device)
    q = laid_out(tokens, heads, rope_dim + 5, layout, dtype)
    pairs = q[..., 5:].float().unflatten(-1, (-1, 2))
    turned = torch.stack((-pairs[..., 1], pairs[..., 0]), -1).flatten(-2)
    rotated_part = pairs.flatten(-2) * cos.cpu().float()[:, None] + turned * sin.cpu().float()[:, None]
    want = torch.cat([q[..., :5], rotated_part.to(dtype)], -1)

    got = q.to(device)
    dsv4_npu_ops.apply_rotary(got, None, cos, sin)

    assert torch.equal(got.cpu(), want)


def test_one_row_for_all_tokens(device):
    cos, sin = make_rows(1, 8, torch.float16, device)
    q = torch.randn(6, 2, 8, generator=torch.Generator().manual_seed(3)).to(device)
    repeated = q.clone()
    dsv4_npu_ops.apply_rotary(repeated, None, cos.expand(6, 8), sin.expand(6, 8))
    dsv4_npu_ops.apply_rotary(q, None, cos.repeat(6, 1), sin.repeat(6, 1))
    assert torch.equal(repeated, q)


@pytest.mark.device_only
def test_the_device_refuses_float64():
    cos, sin = make_rows(2, 4, torch.float32, "cpu")
    x = torch.ones(2, 4, dtype=torch.float64)
    for name, operands in (("q", (x, None)), ("kv", (None, x))):
        with pytest.raises(ValueError, match=f"apply_rotary: {name} has dtype Double, expected Float or Half"):
            dsv4_npu_ops.apply_rotary(*operands, cos, sin)
    with pytest.raises(ValueError, match="apply_rotary: cos has 2034 features, expected at most 2032 on this device"):
        dsv4_npu_ops.apply_rotary(torch.ones(2, 2034), None, *make_rows(2, 2034, torch.float32, "cpu"))
    assert (x == 1).all()


@pytest.mark.simulated_only
@pytest.mark.parametrize("dtype", TABLE_DTYPES)
def test_simulated_traffic_is_what_must_move(ascend_sim, dtype):
    tokens, heads, rope_dim = 256, 16, 64
    cos, sin = make_rows(tokens, rope_dim, torch.float32, "cpu")
    q, kv = torch.ones(tokens, heads, 512, dtype=dtype), torch.ones(tokens, 512, dtype=dtype)
    dsv4_npu_ops.apply_rotary(q, kv, cos, sin)
    (counters,) = ascend_sim.take_counters()
    rotated_bytes = tokens * (heads + 1) * rope_dim * q.element_size()
    assert counters["mte3_bytes"] == rotated_bytes
    assert counters["mte2_bytes"] + counters["mte3_bytes"] <= 1.25 * (2 * rotated_bytes + 2 * cos.nbytes)
    # The start of an index vector: 8 elements a block.
    assert counters["ub_scalar_writes"] + counters["ub_scalar_reads"] <= 8 * counters["blocks"]
    assert counters["balance"]["most_bytes"] <= 1.1 * counters["balance"]["least_bytes"]


def zeros(*shape, **kwargs):
    return torch.zeros(*shape, **kwargs)


BAD_ARGUMENTS = [
    (dict(cos=zeros(4)), "cos has shape [4], expected [T, D] or [T, 1, 1, D]"),
    (dict(cos=zeros(3, 1, 2, 4)), "cos has shape [3, 1, 2, 4], expected [T, D] or [T, 1, 1, D]"),
    (dict(sin=zeros(3, 4, 1)), "sin has shape [3, 4, 1], expected [T, D] or [T, 1, 1, D]"),
    (dict(sin=zeros(2, 4)), "sin has shape [2, 4], expected [3, 4]"),
    (dict(cos=zeros(3, 4, dtype=torch.float64)), "cos has dtype Double, expected Float or Half or BFloat16"),
    (dict(sin=zeros(3, 4).half()), "sin has dtype Half, expected Float"),
    (dict(cos=zeros(3, 8)[:, ::2]), "cos has strides [8, 2], expected elements of a row next to each other"),
    (dict(cos=zeros(3, 3), sin=zeros(3, 3)), "cos has 3 features, expected a positive even number"),
    (dict(cos=zeros(3, 0), sin=zeros(3, 0)), "cos has 0 features, expected a positive even number"),
    (dict(q=None, kv=None), "q and kv are both None, expected at least one"),
    (dict(q=zeros(3)), "q has shape [3], expected [T, head_dim] or [T, H, head_dim]"),
    (dict(kv=zeros(3, 1, 1, 6)), "kv has shape [3, 1, 1, 6], expected [T, head_dim] or [T, H, head_dim]"),
    (dict(q=zeros(3, 2, 6).long()), "q has dtype Long, expected Float or Half or BFloat16 or Double"),
    (dict(q=zeros(2, 2, 6)), "q has 2 tokens, expected 3 like cos"),
    (dict(kv=zeros(3, 2)), "kv has 2 features a head, expected at least the 4 of cos"),
    (dict(kv=zeros(3, 12)[:, ::2]), "kv has strides [12, 2], expected elements of a row next to each other"),
    (dict(q=zeros(3, 1, 6).expand(3, 2, 6)), "q has strides [6, 0, 1], expected elements that do not share memory"),
]


@pytest.mark.parametrize("bad, message", BAD_ARGUMENTS, ids=[message for _, message in BAD_ARGUMENTS])
def test_bad_arguments(bad, message):
    arguments = dict(q=torch.ones(3, 2, 6), kv=torch.ones(3, 6), cos=zeros(3, 4), sin=zeros(3, 4)) | bad
    with pytest.raises(ValueError) as error:
        dsv4_npu_ops.apply_rotary(**arguments)
    assert f"apply_rotary: {message}" in str(error.value)
    for name in {"q", "kv"} - set(bad):
        assert (arguments[name] == 1).all()


@pytest.mark.parametrize("name", ["q", "kv", "sin"])
def test_another_device(name):
    arguments = dict(q=zeros(3, 2, 6), kv=zeros(3, 6), cos=zeros(3, 4), sin=zeros(3, 4))
    arguments[name] = arguments[name].to("meta")
    with pytest.raises(ValueError, match=rf"apply_rotary: {name} is on meta, expected \S+ like cos"):
        torch.ops.dsv4_npu_ops.apply_rotary.default.redispatch(
            torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *arguments.values()
        )


def test_shared_memory_is_refused():
    q = torch.ones(3, 2, 6)
    for kv in (q, q.view(6, 6)[:3]):
        with pytest.raises(ValueError, match="kv shares memory with q, expected tensors of their own"):
            dsv4_npu_ops.apply_rotary(q, kv, zeros(3, 4), zeros(3, 4))
    assert (q == 1).all()


@pytest.mark.one_variant
def test_opcheck(device):
    cos, sin = make_rows(3, 4, torch.float32, device)
    q, kv = torch.ones(3, 2, 6, device=device), torch.ones(3, 6, device=device)
    for arguments in ((q, kv, cos, sin), (q, None, cos, sin), (None, kv, cos, sin)):
        opcheck(torch.ops.dsv4_npu_ops.apply_rotary.default, arguments, {"inverse": True})

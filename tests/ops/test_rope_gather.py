"""RoPE row gather against its oracle."""

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from reference import rope_gather as oracle

import dsv4_npu_ops

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def make_tables(max_pos, dim, dtype, device, seed=0):
    generator = torch.Generator().manual_seed(seed)
    cos = torch.randn(max_pos, dim, generator=generator).to(dtype)
    sin = torch.randn(max_pos, dim, generator=generator).to(dtype)
    return cos.to(device), sin.to(device)


@given(
    max_pos=st.integers(1, 40),
    dim=st.sampled_from([1, 2, 7, 16, 64, 96]),
    data=st.data(),
    dtype=st.sampled_from(DTYPES),
    out_dtype=st.sampled_from(DTYPES),
    index_dtype=st.sampled_from([torch.int32, torch.int64]),
    inverse=st.booleans(),
)
def test_rows_equal_the_oracle(device, max_pos, dim, data, dtype, out_dtype, index_dtype, inverse):
    rows = data.draw(st.lists(st.integers(0, max_pos - 1), max_size=50))
    cos, sin = make_tables(max_pos, dim, dtype, device)
    positions = torch.tensor(rows, dtype=index_dtype, device=device)
    want_cos, want_sin = oracle.rope_gather(cos.float().tolist(), sin.float().tolist(), rows, inverse)
    out = [torch.full((len(rows), dim), float("nan"), dtype=out_dtype, device=device) for _ in range(2)]

    for got_cos, got_sin in (
        dsv4_npu_ops.rope_gather(cos, sin, positions, inverse=inverse, dtype=out_dtype),
        dsv4_npu_ops.rope_gather(cos, sin, positions, inverse=inverse, out=tuple(out)),
    ):
        for got, want in ((got_cos, want_cos), (got_sin, want_sin)):
            want = torch.tensor(want).reshape(len(rows), dim).to(out_dtype)
            assert got.dtype == out_dtype
            assert torch.equal(got.cpu(), want)


def test_view_4d(device):
    cos, sin = make_tables(8, 4, torch.float32, device)
    got_cos, got_sin = dsv4_npu_ops.rope_gather(cos, sin, torch.tensor([3, 1], device=device), view_4d=True)
    assert got_cos.shape == got_sin.shape == (2, 1, 1, 4)
    assert torch.equal(got_cos[0, 0, 0].cpu(), cos[3].cpu())


@pytest.mark.cpu_only
@pytest.mark.parametrize("position", [-1, 8])
def test_position_outside_the_table_raises_and_writes_nothing(position):
    cos, sin = make_tables(8, 4, torch.float32, "cpu")
    out = (torch.full((2, 4), 7.0), torch.full((2, 4), 7.0))
    with pytest.raises(IndexError, match=rf"positions\[1\] is {position}, expected 0 <= position < 8"):
        dsv4_npu_ops.rope_gather(cos, sin, torch.tensor([0, position]), out=out)
    assert all(torch.equal(t, torch.full((2, 4), 7.0)) for t in out)


@pytest.mark.parametrize("inverse", [False, True])
def test_rows_of_several_tiles(device, inverse):
    """A core takes 44 rows of this length at a time, 24 if it computes."""
    cos, sin = make_tables(300, 256, torch.float32, device)
    positions = torch.randperm(300, generator=torch.Generator().manual_seed(1))[:250]
    got_cos, got_sin = dsv4_npu_ops.rope_gather(cos, sin, positions.to(device), inverse=inverse)
    assert torch.equal(got_cos.cpu(), cos.cpu()[positions])
    assert torch.equal(got_sin.cpu(), (-sin.cpu() if inverse else sin.cpu())[positions])


@pytest.mark.device_only
@pytest.mark.parametrize("out_dtype", DTYPES)
def test_position_outside_the_table_gives_nan_and_an_error_word(ascend_sim, out_dtype):
    cos, sin = make_tables(8, 4, torch.float32, "cpu")
    got_cos, got_sin = dsv4_npu_ops.rope_gather(cos, sin, torch.tensor([6, 7, 8, -1, 0, 1]), dtype=out_dtype)
    for got, table in ((got_cos, cos), (got_sin, sin)):
        assert torch.equal(got[[0, 1, 4, 5]], table[[6, 7, 0, 1]].to(out_dtype))
        assert got[[2, 3]].isnan().all()
    assert ascend_sim.take_errors() == [[1, 100, 2, 8, 0, 0, 0, 0]]


BAD_ARGUMENTS = [
    (dict(cos=torch.zeros(8)), "cos has shape [8], expected 2 dimensions"),
    (
        dict(cos=torch.zeros(8, 4, dtype=torch.float64)),
        "cos has dtype Double, expected Float or Half or BFloat16",
    ),
    (
        dict(cos=torch.zeros(8, 8)[:, ::2]),
        "cos has strides [8, 2] for shape [8, 4], expected a contiguous tensor",
    ),
    (dict(sin=torch.zeros(8, 4, dtype=torch.float16)), "sin has dtype Half, expected Float"),
    (dict(sin=torch.zeros(7, 4)), "sin has shape [7, 4], expected [8, 4]"),
    (dict(sin=torch.zeros(8, 8)[:, ::2]), "sin has strides [8, 2]"),
    (
        dict(positions=torch.zeros(2, 1, dtype=torch.int64)),
        "positions has shape [2, 1], expected 1 dimension",
    ),
    (dict(positions=torch.zeros(2)), "positions has dtype Float, expected Int or Long"),
    (dict(positions=torch.zeros(4, dtype=torch.int64)[::2]), "positions has strides [2]"),
    (dict(out=(torch.zeros(2, 4, dtype=torch.float64), torch.zeros(2, 4))), "out[0] has dtype Double"),
    (dict(out=(torch.zeros(3, 4), torch.zeros(2, 4))), "out[0] has shape [3, 4], expected [2, 4]"),
    (dict(out=(torch.zeros(2, 4), torch.zeros(2, 5))), "out[1] has shape [2, 5], expected [2, 4]"),
    (dict(out=(torch.zeros(2, 4), torch.zeros(2, 8)[:, ::2])), "out[1] has strides [8, 2]"),
    (dict(out=(torch.zeros(2, 4), torch.zeros(2, 4).half())), "out[1] has dtype Half, expected Float"),
]


@pytest.mark.parametrize("bad, message", BAD_ARGUMENTS, ids=[message for _, message in BAD_ARGUMENTS])
def test_bad_arguments(bad, message):
    arguments = dict(cos=torch.zeros(8, 4), sin=torch.zeros(8, 4), positions=torch.zeros(2, dtype=torch.int64)) | bad
    with pytest.raises(ValueError) as error:
        dsv4_npu_ops.rope_gather(**arguments)
    assert f"rope_gather: {message}" in str(error.value)


@pytest.mark.one_variant
def test_opcheck(device):
    cos, sin = make_tables(8, 4, torch.float32, device)
    positions = torch.tensor([3, 1], device=device)
    opcheck(torch.ops.dsv4_npu_ops.rope_gather.default, (cos, sin, positions), {"inverse": True})
    out = dict(cos_out=torch.empty(2, 4, device=device), sin_out=torch.empty(2, 4, device=device))
    opcheck(torch.ops.dsv4_npu_ops.rope_gather.out, (cos, sin, positions), out)

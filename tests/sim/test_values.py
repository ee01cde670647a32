"""Numbers: what simulated instructions compute, against numpy and torch, bit for bit."""

from __future__ import annotations

import ctypes
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from ascend_sim.simulator import KernelError, Simulator

NONE, RINT, FLOOR, CEIL, ROUND, TRUNC, ODD = range(7)
TO_HALF, TO_BF16, FROM_HALF, FROM_BF16, F32_I32, F32_I64, I64_F32, I32_F32, I64_I32, I32_I64, I32_I16 = range(11)
INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)


def launch(sim: Simulator, kernel: str, src: np.ndarray, dst: np.ndarray, *args: object) -> list[str]:
    """Run over one block and return the kinds of what was reported."""
    sim.clear_memory()
    sim.clear_errors()
    sim.register(src.ctypes.data, src.nbytes, "src")
    sim.register(dst.ctypes.data, dst.nbytes, "dst")
    sim.launch(kernel, 1, src.ctypes.data, dst.ctypes.data, *args)
    return [error.kind for error in sim.errors()]


def cast(sim: Simulator, src: np.ndarray, dst_dtype: type, pair: int, mode: int) -> tuple[np.ndarray, list[str]]:
    dst = np.full(src.size, 85, dtype=dst_dtype)
    kinds = launch(sim, "cast_values", src, dst, src.size, pair, mode)
    return dst, kinds


def interesting_floats() -> np.ndarray:
    rng = np.random.default_rng(7)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    exact = halves[np.isfinite(halves)].astype(np.float32)
    ties = ((exact[:-1].astype(np.float64) + exact[1:].astype(np.float64)) / 2).astype(np.float32)
    random = rng.integers(0, 1 << 32, 40_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = np.nextafter(ties, np.float32(0))
    return np.concatenate([exact, ties, near, random, np.float32([0.0, -0.0, np.inf, -np.inf, np.nan])])


def rounded_to_16_bits(value: float, mode: int, exp_bits: int, man_bits: int) -> float:
    """The neighbour of a finite value that the mode picks, by exact fractions. Infinite beyond the range."""
    bias = (1 << (exp_bits - 1)) - 1
    exact = Fraction(value)
    if exact == 0:
        return value
    exponent = max(math.floor(math.log2(abs(value))), 1 - bias)
    while abs(exact) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while exponent > 1 - bias and abs(exact) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - man_bits)
    low = math.floor(exact / unit)
    rest = exact / unit - low
    if rest == 0:
        picked = low
    elif mode in (NONE, RINT):
        picked = low if rest < Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 0) else low + 1
    elif mode == FLOOR:
        picked = low
    elif mode == CEIL:
        picked = low + 1
    elif mode == ROUND:
        picked = low + 1 if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and value > 0) else low
    elif mode == TRUNC:
        picked = low if value > 0 else low + 1
    else:
        picked = low if low % 2 != 0 else low + 1
    most = (2 - Fraction(1, 1 << man_bits)) * Fraction(2) ** bias
    result = picked * unit
    if abs(result) > most:
        finite = mode in (TRUNC, ODD) or (mode == FLOOR and value > 0) or (mode == CEIL and value < 0)
        return math.copysign(float(most) if finite else math.inf, value)
    return math.copysign(float(result), value)


def test_half_and_bfloat16_widen_exactly(sim: Simulator) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    out, _ = cast(sim, every, np.float32, FROM_HALF, NONE)
    expected = every.view(np.float16).astype(np.float32)
    assert np.array_equal(out[~np.isnan(expected)].view(np.uint32), expected[~np.isnan(expected)].view(np.uint32))
    assert np.isnan(out[np.isnan(expected)]).all()
    out, _ = cast(sim, every, np.float32, FROM_BF16, NONE)
    assert np.array_equal(out.view(np.uint32), every.astype(np.uint32) << 16)


def test_round_to_nearest_matches_numpy_and_torch(sim: Simulator) -> None:
    values = interesting_floats()
    numbers = ~np.isnan(values)
    half, kinds = cast(sim, values, np.uint16, TO_HALF, RINT)
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16).view(np.uint16)
    assert np.array_equal(half[numbers], expected[numbers])
    assert np.isnan(half[~numbers].view(np.float16)).all()
    assert kinds == ["half.special"]
    bfloat, _ = cast(sim, values, np.uint16, TO_BF16, RINT)
    torch_bits = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(bfloat[numbers], torch_bits[numbers])


def test_every_half_survives_a_round_trip(sim: Simulator) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    finite = every[np.isfinite(every.view(np.float16))]
    wide, _ = cast(sim, finite, np.float32, FROM_HALF, NONE)
    for mode in (NONE, RINT, FLOOR, CEIL, ROUND, TRUNC, ODD):
        back, kinds = cast(sim, wide, np.uint16, TO_HALF, mode)
        assert np.array_equal(back, finite) and kinds == []


@pytest.mark.parametrize("mode", [RINT, FLOOR, CEIL, ROUND, TRUNC, ODD])
@pytest.mark.parametrize(("pair", "exp_bits", "man_bits"), [(TO_HALF, 5, 10), (TO_BF16, 8, 7)])
def test_rounding_modes_to_16_bits(sim: Simulator, pair: int, exp_bits: int, man_bits: int, mode: int) -> None:
    if pair == TO_BF16 and mode == ODD:
        pytest.skip("the device has no such mode")
    values = interesting_floats()
    values = np.concatenate([values[np.isfinite(values)][::97], np.float32([65504, 65519, 65520, 1e-8, -6e-8, 3.4e38])])
    out, _ = cast(sim, values, np.uint16, pair, mode)
    if pair == TO_HALF:
        got = out.view(np.float16).astype(np.float64)
    else:
        got = (out.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    for value, result in zip(values.tolist(), got.tolist(), strict=True):
        assert result == rounded_to_16_bits(value, mode, exp_bits, man_bits), value


@pytest.mark.parametrize("mode", [RINT, FLOOR, CEIL, ROUND, TRUNC])
def test_float_to_integer_rounds_and_saturates(sim: Simulator, mode: int) -> None:
    values = np.float32([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 8388609, -7.2, 7.8, 2147483520, -2147483648.0])
    rounding = {
        RINT: np.rint,
        FLOOR: np.floor,
        CEIL: np.ceil,
        TRUNC: np.trunc,
        ROUND: lambda x: np.trunc(x.astype(np.float64) + np.copysign(0.5, x)),
    }[mode]
    out, kinds = cast(sim, values, np.int32, F32_I32, mode)
    assert out.tolist() == rounding(values).astype(np.int64).tolist() and kinds == []
    out, kinds = cast(sim, np.float32([3e9, -3e9, np.inf, -np.inf, np.nan]), np.int32, F32_I32, mode)
    assert out.tolist() == [INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, 0] and kinds == ["cast.range"]
    out, kinds = cast(sim, np.float32([3e9, -1e30, 1e30, 2.5]), np.int64, F32_I64, mode)
    assert out.tolist()[:3] == [3_000_000_000, -(2**63), 2**63 - 1] and kinds == ["cast.range"]


def test_integers_to_float_and_to_each_other(sim: Simulator) -> None:
    rng = np.random.default_rng(3)
    ints = rng.integers(INT32_MIN, INT32_MAX, 5000, dtype=np.int64).astype(np.int32)
    out, _ = cast(sim, ints, np.float32, I32_F32, RINT)
    assert np.array_equal(out, ints.astype(np.float32))
    down, _ = cast(sim, ints, np.float32, I32_F32, FLOOR)
    assert (down.astype(np.float64) <= ints).all() and (ints - down.astype(np.float64) < 256).all()
    wide = rng.integers(-(2**63), 2**63 - 1, 5000, dtype=np.int64)
    out, _ = cast(sim, wide, np.float32, I64_F32, RINT)
    assert np.array_equal(out, wide.astype(np.float32))
    out, kinds = cast(sim, ints, np.int64, I32_I64, NONE)
    assert np.array_equal(out, ints) and kinds == []
    out, kinds = cast(sim, np.int64([5, -5, 2**31, -(2**31) - 1, INT32_MAX]), np.int32, I64_I32, NONE)
    assert out.tolist() == [5, -5, INT32_MAX, INT32_MIN, INT32_MAX] and kinds == ["cast.range"]
    out, kinds = cast(sim, np.int32([7, -32768, 40000]), np.int16, I32_I16, NONE)
    assert out.tolist() == [7, -32768, 32767] and kinds == ["cast.range"]


def test_a_mode_that_the_device_lacks_writes_nothing(sim: Simulator) -> None:
    for src, dtype, pair, mode in (
        (np.int32([1]), np.int64, I32_I64, RINT),
        (np.float32([1]), np.uint16, TO_BF16, NONE),
        (np.float32([1]), np.int32, F32_I32, NONE),
        (np.uint16([1]), np.float32, FROM_HALF, RINT),
    ):
        out, kinds = cast(sim, src, dtype, pair, mode)
        assert kinds == ["cast.mode"] and out.tolist() == [85]


def test_scalar_arithmetic(sim: Simulator) -> None:
    rng = np.random.default_rng(11)
    ints = rng.integers(INT32_MIN, INT32_MAX, 3000, dtype=np.int64).astype(np.int32)
    out = np.zeros_like(ints)
    for shift in (0, 1, 7, 31):
        assert launch(sim, "scalar_values", ints, out, ints.size, 0, 1, as_float(shift)) == []
        assert np.array_equal(out, ints >> shift)
        assert launch(sim, "scalar_values", ints, out, ints.size, 1, 1, as_float(shift)) == []
        assert np.array_equal(out.view(np.uint32), ints.view(np.uint32) >> np.uint32(shift))
        assert launch(sim, "scalar_values", ints, out, ints.size, 0, 0, as_float(shift)) == []
        assert np.array_equal(out, ints << shift)
    assert launch(sim, "scalar_values", ints, out, ints.size, 0, 2, as_float(2**30)) == ["int.overflow"]
    with np.errstate(over="ignore"):
        assert np.array_equal(out, ints + np.int32(2**30))
    assert launch(sim, "scalar_values", ints, out, ints.size, 0, 4, as_float(-3)) == []
    assert np.array_equal(out, np.maximum(ints, -3))
    halves = rng.normal(size=4000).astype(np.float16)
    for op, expected in ((2, halves + np.float16(0.37)), (3, halves * np.float16(0.37))):
        result = np.zeros_like(halves)
        assert launch(sim, "scalar_values", halves, result, halves.size, 2, op, as_float(0.37)) == []
        assert np.array_equal(result.view(np.uint16), expected.view(np.uint16))


def as_float(value: float) -> ctypes.c_float:
    return ctypes.c_float(value)


def test_filler_of_padded_copies(sim: Simulator) -> None:
    src = np.int32([1, 2, 3, 4, 5, 6])
    out = np.zeros(16, dtype=np.int32)
    # No padding asked for: the first element of each block fills up to 32 bytes.
    assert launch(sim, "filler_values", src, out, 1, 0, 0) == ["store.padding"]
    assert out.tolist() == [1, 2, 3, 1, 1, 1, 1, 1, 4, 5, 6, 4, 4, 4, 4, 4]
    # Padding with a value: what was asked for counts as defined, the rest does not.
    assert launch(sim, "filler_values", src, out, 1, 2, 3) == []
    assert out.tolist() == [-9, -9, 1, 2, 3, -9, -9, -9, -9, -9, 4, 5, 6, -9, -9, -9]
    assert launch(sim, "filler_values", src, out, 1, 2, 1) == ["store.padding"]
    # Padding without a value: garbage around the data.
    assert launch(sim, "filler_values", src, out, 0, 2, 3) == ["store.padding"]
    assert out[2:5].tolist() == [1, 2, 3] and out[10:13].tolist() == [4, 5, 6]
    assert out[0] not in (0, 1, -9) and out[7] not in (0, 1, -9)


def test_gathers(sim: Simulator) -> None:
    src = np.arange(100, 164, dtype=np.int32)

    def gathered(way: int) -> list[int]:
        out = np.full(128, -1, dtype=np.int32)
        assert launch(sim, "gather_values", src, out, way) == []
        return out[: np.flatnonzero(out != -1)[-1] + 1].tolist()

    assert gathered(0) == list(range(100, 132, 4))
    assert gathered(1) == list(range(100, 132, 4))
    assert gathered(3) == list(range(100, 164, 2))
    assert gathered(4) == list(range(101, 164, 2))
    for quarter in range(4):
        assert gathered(5 + quarter) == list(range(100 + quarter, 164, 4))
    assert gathered(9) == src.tolist()
    # Counter mode: 20 elements a repeat, repeats 4 blocks apart.
    assert gathered(10) == list(range(100, 120, 2)) + list(range(132, 152, 2))
    assert gathered(11) == [100 + i // 8 for i in range(64)]
    assert gathered(12) == [100 + (7 - i // 8) * 8 + i % 8 for i in range(64)]


@pytest.mark.parametrize("mode", range(6))
def test_compare_select_reduce(sim: Simulator, mode: int) -> None:
    src = np.random.default_rng(5).integers(-3, 4, 128).astype(np.float32)
    out, bits = np.zeros(160, dtype=np.float32), np.zeros(16, dtype=np.uint8)
    sim.register(src.ctypes.data, src.nbytes, "src")
    sim.register(out.ctypes.data, out.nbytes, "dst")
    sim.register(bits.ctypes.data, bits.nbytes, "bits")
    args = (src.ctypes.data, out.ctypes.data, bits.ctypes.data, mode, as_float(1.0))
    sim.run("float_values", 1, *args)
    compared = (src < 1, src > 1, src == 1, src <= 1, src >= 1, src != 1)[mode]
    assert np.unpackbits(bits, bitorder="little").astype(bool).tolist() == compared.tolist()
    assert out[:128].tolist() == np.where(compared, src, 1.0).tolist()
    assert out[128] == src.sum()
    assert out[129] == src.max() and out[130:131].view(np.uint32)[0] == int(src.argmax())
    assert out[131:133].tolist() == [src[:64].sum(), src[64:].sum()]
    assert out[133:141].tolist() == src[:64].reshape(8, 8).max(axis=1).tolist()
    assert out[141:145].tolist() == src[:8].reshape(4, 2).sum(axis=1).tolist()


def test_index_writes_a_whole_first_block(sim: Simulator) -> None:
    out = np.zeros(64, dtype=np.int32)
    sim.register(out.ctypes.data, out.nbytes, "dst")
    sim.run("index_values", 1, out.ctypes.data, 0, 3)
    assert out[:9].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, -5]
    sim.run("index_values", 1, out.ctypes.data, 40, 20)
    assert out[:21].tolist() == [*range(40, 60), -5]
    with pytest.raises(KernelError, match=r"index\.inexact"):
        sim.run("index_values", 1, out.ctypes.data, (1 << 24) + 1, 20)
    # Past 2^24 the first block goes through float and loses its odd values.
    assert out[:3].tolist() == [(1 << 24), (1 << 24), (1 << 24) + 2]


def test_overflow_report_can_be_switched_off(sim: Simulator) -> None:
    src, out = np.int32([INT32_MAX]), np.zeros(1, dtype=np.int32)
    sim.configure(report_overflow=False)
    assert launch(sim, "scalar_values", src, out, 1, 0, 2, as_float(1)) == []
    assert out.tolist() == [INT32_MIN]

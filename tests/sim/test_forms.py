"""Masked, strided and composite forms, atomics and scalar helpers."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from ascend_sim.simulator import KernelError, Simulator


def run(sim: Simulator, kernel: str, src: np.ndarray, dst: np.ndarray, way: int, blocks: int = 1) -> np.ndarray:
    sim.clear_memory()
    sim.register(src.ctypes.data, src.nbytes, "src")
    sim.register(dst.ctypes.data, dst.nbytes, "dst")
    sim.run(kernel, blocks, src.ctypes.data, dst.ctypes.data, way)
    return dst


def test_integer_forms(sim: Simulator) -> None:
    src = np.random.default_rng(1).integers(-1000, 1000, 128).astype(np.int32)

    def result(way: int) -> np.ndarray:
        return run(sim, "integer_forms", src, np.zeros(128, dtype=np.int32), way)

    untouched = np.full(128, -1, dtype=np.int32)
    expected = untouched.copy()
    for repeat in (0, 64):
        expected[repeat : repeat + 10] = src[repeat : repeat + 10] + 1000
    assert np.array_equal(result(0), expected)

    expected = untouched.copy()
    for lane in range(1, 32, 2):
        expected[lane] = src[lane // 8 * 16 + lane % 8] + src[lane]
    assert np.array_equal(result(1), expected)

    expected = untouched.copy()
    expected[:70] = src[:70] * 3
    assert np.array_equal(result(2), expected)

    assert np.array_equal(result(3)[:64], src[:64] ^ src[64:])
    assert np.array_equal(result(4), src * 2)
    assert np.array_equal(result(5)[:101], [*range(5, 305, 3), -1])

    # Sixteen repeats of one block, all from the first block of the source.
    assert np.array_equal(result(6), np.tile(src[:8], 16))

    expected = untouched.copy()
    for block in range(4):
        expected[block * 24 : block * 24 + 8] = src[block * 16 : block * 16 + 8]
    assert np.array_equal(result(7), expected)
    assert np.array_equal(result(8), np.maximum(src, 0))
    assert np.array_equal(result(9)[:64], np.minimum(np.maximum(src[:64], src[64:]), src[:64]))


def test_float_forms(sim: Simulator) -> None:
    rng = np.random.default_rng(2)
    src, old = np.zeros(256, dtype=np.float32), np.zeros(256, dtype=np.float32)
    src[:] = rng.normal(size=256)
    old[:] = rng.normal(size=256)
    head = slice(0, 64)
    expected = [old[head] + src[head] * np.float32(0.1), old[head] + src[head] * src[head], old[head] / src[head]]
    for way, values in enumerate(expected):
        got = run(sim, "float_forms", src, old.copy(), way)
        assert np.array_equal(got[head].view(np.uint32), values.view(np.uint32))
        assert np.array_equal(got[64:], old[64:])


def test_atomics(sim: Simulator) -> None:
    src = np.random.default_rng(3).integers(-50, 50, 256).astype(np.float32)
    start = np.full(256, 3, dtype=np.float32)
    rows = src[:32].reshape(4, 8)
    expected = [np.maximum(rows.max(axis=0), 3), np.minimum(rows.min(axis=0), 3), rows.sum(axis=0) + 3]
    for way, values in enumerate(expected):
        assert run(sim, "atomic_forms", src, start.copy(), way, blocks=4)[:8].tolist() == values.tolist()


def test_fill_of_global_memory(sim: Simulator) -> None:
    src, dst = np.zeros(256, dtype=np.int32), np.full(256, -1, dtype=np.int32)
    run(sim, "fill_memory", src, dst, 0)
    assert dst.tolist() == [7] * 100 + [9] * 50 + [-1] * 106
    with pytest.raises(KernelError, match=r"order\.war"):
        run(sim, "fill_memory", src, dst, 1)


def test_scalar_helpers(sim: Simulator) -> None:
    out = np.zeros(16, dtype=np.int32)
    sim.register(out.ctypes.data, out.nbytes, "dst")
    sim.run("scalar_helpers", 1, out.ctypes.data, ctypes.c_float(2.5), ctypes.c_uint64(0xF0))
    assert out[:10].tolist() == [2, 2, 4, 60, 56, 4, 0, 66, 2500, 2500]

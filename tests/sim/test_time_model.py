"""The time model beside cycles that the toolkit's documents publish, and what it must say of order.

Published: the samples add_high_performance, data_copy and data_cache_preload of cann/asc-devkit on Atlas A2 and A3. A
figure is a loop's cycles an iteration on one core, the published time times 1.85 GHz over the iterations.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from ascend_sim.instructions import load_table
from ascend_sim.simulator import Simulator

CLOSE = 0.25


def cycles_of(sim: Simulator, kernel: str, blocks: int, tiles: int, *arguments: int) -> float:
    """Of the slowest block, an iteration: what more iterations take longer."""
    ends = []
    for count in (tiles, 3 * tiles):
        sim.clear_counters()
        sim.run(kernel, blocks, *_memory(sim, kernel, blocks, arguments), count, *arguments)
        ends.append(sim.counters()[-1]["model_cycles"]["end"])
    return (ends[1] - ends[0]) / (2 * tiles)


KEPT: list[np.ndarray] = []
"""Memory of the launch that runs."""


def _memory(sim: Simulator, kernel: str, blocks: int, arguments: tuple[int, ...]) -> list[int]:
    sizes = (
        [2 * arguments[0], 2 * arguments[0] * blocks]
        if kernel == "add_tiles"
        else [arguments[0] * (arguments[1] + arguments[2])]
    )
    sim.clear_memory()
    KEPT[:] = [np.zeros(size + 512, dtype=np.uint8) for size in sizes]
    addresses = []
    for i, array in enumerate(KEPT):
        # Tensors start at multiples of 512 bytes on a device.
        address = (array.ctypes.data + 511) // 512 * 512
        sim.register(address, sizes[i], f"memory{i}")
        addresses.append(address)
    return addresses


@pytest.mark.parametrize(
    "kernel, blocks, cold, tiles, arguments, published",
    [
        pytest.param("add_tiles", 1, True, 2, (4096, 1), 34.2 * 4096, id="add case 0, a scalar loop"),
        pytest.param("add_tiles", 1, True, 20, (4096, 0), 780, id="add case 1, one core"),
        pytest.param("add_tiles", 48, True, 10, (4096, 0), 1612, id="add case 2, 8 KB a copy"),
        pytest.param("add_tiles", 48, True, 4, (16384, 0), 5671, id="add case 3, 32 KB a copy"),
        pytest.param("load_tiles", 48, True, 400, (1, 128, 24448), 20.9, id="copy scenario 1, single rows"),
        pytest.param("load_tiles", 48, True, 6, (64, 128, 24448), 547, id="copy scenario 2, 64 short rows"),
        # A quarter of their 64 rows, so that a few tiles fit.
        pytest.param("load_tiles", 48, True, 1, (16, 2048, 22528), 8057 / 4, id="copy scenario 3, long rows"),
        pytest.param("load_tiles", 48, True, 1, (16, 2048, 22526), 10264 / 4, id="copy scenario 4, unaligned"),
        pytest.param("load_tiles", 48, False, 1, (16, 2048, 22528), 1907 / 4, id="copy scenario 6, out of L2"),
        pytest.param(
            *("load_tiles", 48, False, 3, (128, 128, 896), 1523),
            id="copy scenario 8, short rows, all cores the same memory in turns",
            # Cores that come to one 512-byte piece at one time wait for each other, which the model leaves out.
            marks=pytest.mark.xfail(strict=True),
        ),
    ],
)
def test_published_loops(sim, kernel, blocks, cold, tiles, arguments, published):
    sim.configure(memory_cold=cold)
    load_table(Path(sim.library._name), "aclrtlaunch_add_tiles", Path(__file__).parent / "kernels")
    found = cycles_of(sim, kernel, blocks, tiles, *arguments)
    assert abs(found / published - 1) <= CLOSE


@pytest.mark.parametrize(("preload", "microseconds"), [(0, 29.254), (1, 17.748)], ids=["as read", "preloaded"])
def test_published_loops_over_the_data_cache(sim: Simulator, preload: int, microseconds: float) -> None:
    """256 bytes of 1024 lines, drawn with repetition: time of the scalar unit."""
    load_table(Path(sim.library._name), "aclrtlaunch_add_tiles", Path(__file__).parent / "kernels")
    data = np.random.default_rng(0).integers(0, 256, (1 << 16) + 512, dtype=np.uint8)
    indices = np.zeros(256 + 16, dtype=np.uint32)
    indices = indices[-indices.ctypes.data % 64 // 4 :][:256]
    indices[:] = np.random.default_rng(1).integers(0, 1024, 256) * 64
    result = np.zeros(1, dtype=np.int32)
    start = -data.ctypes.data % 512
    sim.register(data.ctypes.data + start, 1 << 16, "data")
    sim.register(indices.ctypes.data, indices.nbytes, "indices")
    sim.register(result.ctypes.data, result.nbytes, "result")
    sim.run(
        "sum_scattered", 1, data.ctypes.data + start, indices.ctypes.data, result.ctypes.data, len(indices), preload
    )
    assert result[0] == data[start:][indices].astype(np.int64).sum()
    found = sim.counters()[-1]["per_block"][0]["model_cycles"]["S"] / 1850
    assert abs(found / microseconds - 1) <= CLOSE


class ManyNumbers(ctypes.Structure):
    _fields_ = [("numbers", ctypes.c_int64 * 61)]


def _arguments(sim: Simulator, lines: int) -> tuple[object, ...]:
    return (*_memory(sim, "load_tiles", 1, (1, 32, 0)), ManyNumbers(), 1, lines)


def test_preloaded_arguments_are_waited_for_together(sim: Simulator) -> None:
    """Four lines at a time; the rest one after the other, asked for or not."""
    ends = []
    for lines in (0, 1, 4, 8):
        sim.run("preload_arguments", 1, *_arguments(sim, lines))
        ends.append(sim.counters()[-1]["per_block"][0]["model_cycles"]["end"])
        assert {warning.kind for warning in sim.warnings()} == ({"gm.preload_dropped"} if lines > 4 else set())
    line, together = 210, 115
    assert ends[0] - ends[1] == pytest.approx(line - together, abs=20)
    assert ends[1] - ends[2] == pytest.approx(3 * line, abs=20)
    assert 0 <= ends[3] - ends[2] < 20


def test_arguments_are_preloaded_up_to_their_end(sim: Simulator) -> None:
    sim.launch("preload_arguments", 1, *_arguments(sim, 10))
    assert [error.kind for error in sim.errors()] == ["bounds.gm"]
    sim.clear_errors()


def test_preloaded_code_is_not_waited_for(sim: Simulator) -> None:
    load_table(Path(sim.library._name), "aclrtlaunch_add_tiles", Path(__file__).parent / "kernels")
    cold = []
    for units in (0, 1, 7):
        sim.run("preload_code", 1, *_memory(sim, "load_tiles", 1, (1, 32, 0)), units)
        cold.append(sim.counters()[-1]["per_block"][0]["model_cycles"]["cold"])
    assert cold[0] > cold[1] == cold[2] > 0


@pytest.mark.parametrize("units", [-1, 8])
def test_code_is_preloaded_up_to_the_cache(sim: Simulator, units: int) -> None:
    sim.launch("preload_code", 1, *_memory(sim, "load_tiles", 1, (1, 32, 0)), units)
    assert [error.kind for error in sim.errors()] == ["range.field"]
    sim.clear_errors()


def test_overlap_counts_and_waiting_too(sim: Simulator) -> None:
    """Two tiles of loads and sums take less than twice one, and more than either alone."""
    ends = []
    for tiles in (1, 2):
        sim.clear_counters()
        sim.run("add_tiles", 1, *_memory(sim, "add_tiles", 1, (4096, 0)), tiles, 4096, 0)
        ends.append(sim.counters()[-1])
    first, second = (counters["per_block"][0]["model_cycles"] for counters in ends)
    assert second["MTE2"] == 2 * first["MTE2"] and second["V"] == 2 * first["V"]
    assert first["end"] < second["end"] < 2 * first["end"] - first["cold"]
    assert first["end"] > first["cold"] + first["MTE2"] + first["V"] + first["MTE3"]


def test_blocks_cost_launch_time(sim: Simulator) -> None:
    times = []
    for blocks in (1, 11):
        sim.clear_counters()
        sim.run("add_tiles", blocks, *_memory(sim, "add_tiles", blocks, (4096, 0)), 1, 4096, 0)
        times.append(sim.counters()[-1]["model_us"])
    assert times[1] - times[0] == pytest.approx(10 * 0.14, abs=0.01)

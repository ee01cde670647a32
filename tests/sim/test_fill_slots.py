"""A whole kernel: prefix of lengths, ranges made by vector instructions, any block order."""

from __future__ import annotations

import numpy as np
import pytest
from ascend_sim.simulator import Simulator


@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_fill_slots(sim: Simulator, order: str) -> None:
    lens = np.array([5, 0, 3000, 17] + [100] * 20, dtype=np.int32)
    out = np.full(int(lens.sum()) + 4, -1, dtype=np.int64)
    sim.register(lens.ctypes.data, lens.nbytes, "lens")
    sim.register(out.ctypes.data, out.nbytes, "slots", initialised=False)
    sim.configure(order=order, seed=3)
    sim.run("fill_slots", len(lens), lens.ctypes.data, out.ctypes.data, len(lens), 7)
    total = int(lens.sum())
    assert out[:total].tolist() == list(range(7, 7 + total))
    assert out[total:].tolist() == [-1] * 4

    counters = sim.counters()[-1]
    assert counters["mte3_bytes"] == total * 8
    assert counters["mte2_bytes"] == len(lens) * lens.nbytes
    traffic = counters["traffic"]["slots"]
    assert (traffic["read_bytes"], traffic["written_bytes"]) == (0, total * 8)
    # Every copy may share its first and its last block of 32 bytes with others.
    assert 0 <= traffic["block_bytes"] - total * 8 <= 64 * counters["mte3_calls"]
    assert counters["ub_peak_bytes"] == 4096 + 1024 * 16

"""What kernels of operator projects say that ours do not, and the two profiles."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from ascend_sim.simulator import Simulator, build


class Case:
    """Input and output of a small kernel, known to the simulator."""

    def __init__(self, sim: Simulator, src: np.ndarray) -> None:
        self.sim, self.src = sim, np.ascontiguousarray(src)
        raw = np.zeros(256 + 16, dtype=np.int32)
        self.dst = raw[(-raw.ctypes.data % 64) // 4 :][:256]
        sim.register(self.src.ctypes.data, self.src.nbytes, "src")
        sim.register(self.dst.ctypes.data, self.dst.nbytes, "dst")

    def kinds(self, kernel: str, *args: object, blocks: int = 1) -> set[str]:
        """Launch; the kinds of errors."""
        self.sim.clear_errors()
        self.sim.launch(kernel, blocks, self.src.ctypes.data, self.dst.ctypes.data, *args)
        return {error.kind for error in self.sim.errors()}

    def warned(self) -> set[str]:
        return {warning.kind for warning in self.sim.warnings()}


@pytest.fixture
def integers(sim: Simulator) -> Case:
    return Case(sim, np.arange(256, dtype=np.int32))


def test_tiling_struct_and_key(integers: Case) -> None:
    tiling = np.array([40, 1000], dtype=np.int32)
    where = tiling.ctypes.data
    assert integers.kinds("tiled", 0, where, 0) == {"gm.unregistered"}
    integers.sim.register(where, tiling.nbytes, "tiling")
    assert integers.kinds("tiled", 0, where, 0) == set() and not integers.dst.any()
    for key, sign in ((1, 1), (2, -1)):
        integers.sim.configure(tiling_key=key)
        assert integers.kinds("tiled", 0, where, 0) == set()
        assert integers.dst[:41].tolist() == [*(np.arange(40) + sign * 1000), 0]


@pytest.mark.parametrize(
    ("fault", "kind"), [(0, None), (4, None), (1, "order.raw"), (2, "flag.wait_unset"), (3, "pipe.barrier")]
)
def test_flags_and_barriers_by_pipe(integers: Case, fault: int, kind: str | None) -> None:
    tiling = np.array([40, 1000], dtype=np.int32)
    integers.sim.register(tiling.ctypes.data, tiling.nbytes, "tiling")
    integers.sim.configure(tiling_key=1)
    assert integers.kinds("tiled", 0, tiling.ctypes.data, fault) == ({kind} if kind else set())


@pytest.mark.parametrize("n", [1, 13, 16])
@pytest.mark.parametrize("way", [0, 1])
def test_sums_of_rows(sim: Simulator, n: int, way: int) -> None:
    src = np.random.default_rng(n).integers(-100, 100, (16, 16)).astype(np.float32)
    case = Case(sim, src)
    assert case.kinds("row_sums", n, way) == set()
    assert case.dst[:4].view(np.float32).tolist() == src[:4, :n].sum(axis=1).tolist()


def test_sums_of_rows_that_do_not_fit(sim: Simulator) -> None:
    case = Case(sim, np.zeros(256, dtype=np.float32))
    assert case.kinds("row_sums", 17, 0) == {"range.field"}
    assert case.kinds("row_sums", 0, 0) == {"range.field"}
    assert case.kinds("row_sums", 16, 2) == {"bounds.ub"}


def test_cast_by_a_factor(integers: Case) -> None:
    assert integers.kinds("scaled_cast", ctypes.c_float(0.375), 0) == set()
    assert integers.dst[:8].view(np.float16).tolist() == (np.arange(16) * 0.375).tolist()
    assert integers.kinds("scaled_cast", ctypes.c_float(0.375), 1) == {"cast.scale"}


def test_raw_pointers_into_ub(integers: Case) -> None:
    for raw, warned in ((0, set()), (1, {"ub.raw_pointer"})):
        integers.dst[:] = -1
        assert integers.kinds("raw_pointer", raw) == set() and integers.warned() == warned
        assert integers.dst[:9].tolist() == [*range(8), -1]


def test_profiles(integers: Case) -> None:
    integers.src[:] = 1
    assert integers.kinds("by_profile", 0) == {
        "pipe.init_after_use",
        "int.overflow",
        "order.raw",
        "gm.scalar_store",
        "range.nothing",
    }
    integers.sim.configure(profile="cann")
    assert integers.kinds("by_profile", 0) == set()
    assert integers.warned() == {"gm.dirty_line", "range.nothing", "queue.not_freed"}
    assert integers.dst[:64].tolist() == [-0x7FFFFFFF] * 64 and integers.dst[128] == 7
    assert integers.kinds("by_profile", 1) == {"order.raw"}
    assert integers.kinds("by_profile", 2) == {"flag.unbalanced", "queue.not_freed"}
    # A switch that is given beside a profile has the last word.
    integers.sim.configure(profile="cann", strict=True)
    assert integers.kinds("by_profile", 0) == {"order.raw", "pipe.init_after_use"}
    integers.sim.configure(profile="strict")
    assert "int.overflow" in integers.kinds("by_profile", 0)


TWENTY = """#include "kernel_operator.h"
template <class T> concept Small = sizeof(T) <= 4;
template <Small T> __aicore__ inline void Put(GM_ADDR dst, T value) {
    AscendC::TPipe pipe;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 32);
    AscendC::LocalTensor<T> local = buffer.Get<T>();
    local.SetValue(0, value);
    AscendC::PipeBarrier<PIPE_ALL>();
    AscendC::GlobalTensor<T> out;
    out.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(dst), 1);
    AscendC::DataCopyPad(out, local, AscendC::DataCopyExtParams{1, sizeof(T), 0, 0, 0});
}
extern "C" __global__ __aicore__ void twenty(GM_ADDR dst, GM_ADDR tiling) {
    GET_TILING_DATA(data, tiling);
    Put(dst, data.value);
}
"""


# As an operator's host code defines it.
HOST_TILING = """#include "register/tilingdata_base.h"
BEGIN_TILING_DATA_DEF(TwentyTiling)
TILING_DATA_FIELD_DEF_ARR(uint32_t, 2, sizes);
TILING_DATA_FIELD_DEF(int32_t, value);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(Twenty, TwentyTiling)
using AscendSimTiling = TwentyTiling;
"""


def test_cxx20_and_a_tiling_struct_from_outside(sim: Simulator, tmp_path: Path) -> None:
    source, header = tmp_path / "twenty.cpp", tmp_path / "tiling.h"
    source.write_text(TWENTY)
    header.write_text(HOST_TILING)
    shared = Path(sim.library._name).resolve().parents[1] / "ascend_sim"
    with pytest.raises(RuntimeError, match="concept"):
        build([source], tmp_path / "seventeen", include_first=[header], simulator_dir=shared)
    library = build([source], tmp_path / "build", include_first=[header], standard=20, simulator_dir=shared)
    # The two libraries share the simulator of this process.
    other = Simulator(library)
    out, tiling = np.zeros(1, dtype=np.int32), np.array([0, 0, 42], dtype=np.int32)
    sim.register(out.ctypes.data, out.nbytes, "out")
    sim.register(tiling.ctypes.data, tiling.nbytes, "tiling")
    other.run("twenty", 1, out.ctypes.data, tiling.ctypes.data)
    assert out[0] == 42

"""Every kind of mistake is caught with the right message, and the same kernel without it passes.

The kernels of tests/sim/kernels take a number that says which step to get wrong; 0 gets all right.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from ascend_sim.simulator import KernelError, SimulatedError, Simulator

ELEMS = 256

# kernel, fault, kind of error, words that its message must contain
FAULTS = [
    ("order_vector", 1, "order.raw", ["src", "MTE2_V", "DataCopyPad"]),
    ("order_vector", 2, "order.raw", ["V_MTE3", "pipe MTE3"]),
    ("order_vector", 3, "order.war", ["dst", "MTE3_V"]),
    ("order_vector", 4, "order.war", ["dst", "V_MTE2"]),
    ("order_vector", 5, "order.raw", ["PipeBarrier<PIPE_V>"]),
    ("order_scalar", 1, "order.raw", ["GetValue", "MTE2_S"]),
    ("order_scalar", 2, "order.raw", ["Maxs", "S_V"]),
    ("order_scalar", 3, "order.raw", ["GetValue", "V_S"]),
    ("order_scalar", 4, "order.raw", ["S_MTE3"]),
    ("order_reuse", 1, "order.war", ["S_MTE2"]),
    ("order_reuse", 2, "order.war", ["SetValue", "MTE3_S"]),
    ("order_copies", 1, "order.raw", ["MTE2_MTE3"]),
    ("order_copies", 2, "order.war", ["MTE3_MTE2"]),
    ("order_copies", 3, "order.waw", ["PipeBarrier<PIPE_MTE2>"]),
    ("order_copies", 4, "order.gm_waw", ["PipeBarrier<PIPE_MTE3>", "'dst'"]),
    ("order_copies", 5, "order.gm_raw", ["MTE3_MTE2", "'dst'"]),
    ("order_copies", 6, "order.gm_war", ["MTE2_MTE3", "'dst'"]),
    ("flag_cases", 1, "flag.double_set", ["MTE2_MTE3 id 0"]),
    ("flag_cases", 2, "flag.wait_unset", ["MTE2_MTE3 id 1", "hang"]),
    ("flag_cases", 3, "flag.unbalanced", ["MTE3_V"]),
    ("flag_cases", 4, "flag.id", ["8", "0..7"]),
    ("flag_cases", 5, "flag.double_set", ["MTE2_V"]),
    ("flag_cases", 6, "flag.release", ["5"]),
    ("bounds_cases", 1, "bounds.gm", ["'src'", "1024 bytes"]),
    ("bounds_cases", 2, "gm.unregistered", ["0x1000", "src", "dst"]),
    ("bounds_cases", 3, "bounds.index", ["128", "64 elements"]),
    ("bounds_cases", 4, "align.ub", ["src", "multiple of 32"]),
    ("bounds_cases", 5, "bounds.ub", ["src", "256 bytes", "128 bytes"]),
    ("bounds_cases", 6, "bounds.gm", ["'dst'", "1024 bytes"]),
    ("bounds_cases", 7, "bounds.index", ["index 64", "64 elements"]),
    ("bounds_cases", 8, "bounds.buffer", ["from byte 16", "multiple of 32"]),
    ("bounds_cases", 9, "bounds.buffer", ["512 elements", "512 bytes"]),
    ("bounds_cases", 10, "bounds.gm", ["128 bytes", "124 left"]),
    ("bounds_cases", 11, "bounds.index", ["offset 41", "40 elements"]),
    ("bounds_cases", 12, "bounds.index", ["index 40", "40 elements"]),
    ("bounds_cases", 13, "gm.unset", ["SetGlobalBuffer"]),
    ("copy_cases", 1, "copy.tail", ["80", "multiple of 32"]),
    ("copy_cases", 2, "range.field", ["blockLen", "2097152", "0..2097151"]),
    ("copy_cases", 3, "range.field", ["blockCount", "4096", "0..4095"]),
    ("copy_cases", 4, "range.field", ["blockLen", "65536", "0..65535"]),
    ("copy_cases", 5, "range.field", ["30 bytes", "4 bytes"]),
    ("copy_cases", 6, "range.field", ["leftPadding", "9", "0..8"]),
    ("copy_cases", 7, "range.field", ["paddingValue"]),
    ("copy_cases", 8, "bounds.ub", ["dst", "256 bytes"]),
    ("copy_cases", 9, "range.field", ["dstStride", "65536"]),
    ("padding_cases", 1, "read.padding", ["padding of a copy"]),
    ("padding_cases", 2, "read.unwritten", ["nothing has written"]),
    ("padding_cases", 3, "store.padding", ["byte 20"]),
    ("padding_cases", 4, "store.unwritten", ["nothing has written"]),
    ("pool_cases", 1, "budget.ub", ["188160", "at most 188160"]),
    ("pool_cases", 7, "buffer.empty", ["0 bytes"]),
    ("pool_cases", 8, "budget.ub", ["197376 bytes", "768 before"]),
    ("pool_cases", 2, "budget.buffers", ["at most 64"]),
    ("pool_cases", 3, "pipe.init_after_use", ["InitBuffer"]),
    ("pool_cases", 4, "pipe.second", ["one per kernel"]),
    ("pool_cases", 5, "buffer.uninitialised", ["InitBuffer"]),
    ("pool_cases", 6, "pipe.dead", ["TPipe"]),
    ("queue_cases", 1, "queue.exhausted", ["FreeTensor"]),
    ("queue_cases", 2, "queue.empty", ["EnQue"]),
    ("queue_cases", 3, "queue.foreign", ["this queue"]),
    ("queue_cases", 4, "queue.use_after_free", ["src"]),
    ("queue_cases", 5, "order.raw", ["V_MTE3"]),
    ("queue_cases", 6, "queue.full", ["depth is 1"]),
    ("queue_cases", 7, "queue.not_freed", ["FreeTensor"]),
    ("vector_cases", 1, "compare.int32", ["EQ"]),
    ("vector_cases", 2, "compare.count", ["128 bytes", "256"]),
    ("vector_cases", 3, "cast.mode", ["mode 0"]),
    ("vector_cases", 4, "cast.range", ["saturates"]),
    ("vector_cases", 5, "overlap", ["disjoint"]),
    ("vector_cases", 6, "overlap", ["widening"]),
    ("vector_cases", 7, "range.shift", ["33", "0..32"]),
    ("vector_cases", 8, "int.overflow", ["wraps"]),
    ("vector_cases", 9, "index.inexact", ["33554432", "2^24"]),
    ("vector_cases", 10, "bounds.ub", ["whole first block of 8"]),
    ("vector_cases", 11, "range.mask", ["65", "64"]),
    ("vector_cases", 12, "bounds.ub", ["strides"]),
    ("vector_cases", 13, "mask.leak", ["SetMaskNorm"]),
    ("vector_cases", 14, "atomic.leak", ["SetAtomicNone"]),
    ("vector_cases", 15, "range.count", ["-1"]),
    ("vector_cases", 16, "range.nothing", ["no elements"]),
    ("gather_cases", 1, "gather.offset", ["byte 1 of src", "multiple of 4"]),
    ("gather_cases", 2, "gather.offset", ["byte 256 of src", "256 bytes"]),
    ("gather_cases", 3, "overlap", ["disjoint"]),
    ("gather_cases", 4, "range.count", ["16384", "16383"]),
    ("gather_cases", 5, "gather.pattern", ["1..7"]),
    ("gather_cases", 6, "bounds.ub", ["repeat 1"]),
    ("gather_cases", 7, "bounds.ub", []),
    ("gather_cases", 8, "half.special", ["infinite or NaN"]),
    ("block_cases", 1, "blocks.overlap", ["'dst' byte 20", "disjoint"]),
    ("block_cases", 3, "sync.kernel_type", ["KERNEL_TYPE_MIX_AIV_1_0"]),
    ("block_cases", 4, "hang", ["to end"]),
    ("cache_cases", 1, "order.gm_raw", ["MTE3_S"]),
    ("cache_cases", 2, "gm.stale", ["DataCacheCleanAndInvalid"]),
    ("cache_cases", 3, "gm.scalar_store", ["'dst'", "UB"]),
    ("cache_cases", 5, "gm.line_shared", ["cache line"]),
    ("sync_cases", 1, "sync.missing", ["3 of 4 blocks"]),
    ("sync_cases", 2, "blocks.read_of_foreign_write", ["'dst'"]),
    ("sync_cases", 3, "sync.workspace", ["zeros"]),
    ("atomic_sum", 1, "blocks.overlap", ["'dst'"]),
]
KERNELS = sorted({fault[0] for fault in FAULTS})
BLOCKS = {"block_cases": 2, "atomic_sum": 4, "sync_cases": 4}


def aligned(elems: int) -> np.ndarray:
    """An int32 array that starts on a cache line."""
    raw = np.zeros(elems + 16, dtype=np.int32)
    return raw[(-raw.ctypes.data % 64) // 4 :][:elems]


def run_case(sim: Simulator, kernel: str, fault: int) -> np.ndarray:
    src, dst = aligned(ELEMS), aligned(ELEMS)
    src[:] = np.arange(3, 3 + ELEMS)
    dst[:] = -1
    sim.register(src.ctypes.data, src.nbytes, "src")
    sim.register(dst.ctypes.data, dst.nbytes, "dst")
    sim.configure(scalar_gm_stores=kernel == "cache_cases" and fault != 3, max_calls=20_000)
    sim.run(kernel, BLOCKS.get(kernel, 1), src.ctypes.data, dst.ctypes.data, fault)
    return dst


@pytest.mark.parametrize(("kernel", "fault", "kind", "words"), FAULTS, ids=[f"{f[0]}-{f[1]}" for f in FAULTS])
def test_fault_is_caught(sim: Simulator, kernel: str, fault: int, kind: str, words: list[str]) -> None:
    with pytest.raises(KernelError) as caught:
        run_case(sim, kernel, fault)
    found = [error for error in caught.value.errors if error.kind == kind]
    assert found, f"expected {kind}, got:\n{caught.value}"
    assert any(all(word in error.message for word in words) for error in found), str(caught.value)
    for error in found:
        check_named(error, kernel)


def check_named(error: SimulatedError, kernel: str) -> None:
    assert error.kernel == kernel
    assert error.message.startswith("[simulated] kernel " + kernel)
    assert error.call in error.message
    assert 0 <= error.block < 4


@pytest.mark.parametrize("kernel", KERNELS)
def test_corrected_twin_passes(sim: Simulator, kernel: str) -> None:
    run_case(sim, kernel, 0)
    assert sim.errors() == []


def test_scalar_stores_that_are_written_back_pass_when_allowed(sim: Simulator) -> None:
    assert run_case(sim, "cache_cases", 6)[32] == 7


def test_a_scalar_store_that_the_end_of_the_kernel_writes_back_is_a_warning(sim: Simulator) -> None:
    assert run_case(sim, "cache_cases", 4)[32] == 7
    assert sim.errors() == []
    (warning,) = sim.warnings()
    assert warning.kind == "gm.dirty_line" and "DataCacheCleanAndInvalid" in warning.message
    sim.clear_errors()
    run_case(sim, "cache_cases", 6)
    assert sim.warnings() == []


# What the device survives does not end the block: the kernel's results are there, and its later mistakes are found.
@pytest.mark.parametrize(
    ("kernel", "fault", "kind"),
    [
        ("bounds_cases", 10, "bounds.gm"),
        ("bounds_cases", 11, "bounds.index"),
        ("bounds_cases", 12, "bounds.index"),
        ("pool_cases", 7, "buffer.empty"),
        ("pool_cases", 9, "budget.ub"),
    ],
)
def test_a_finding_lets_the_block_go_on(sim: Simulator, kernel: str, fault: int, kind: str) -> None:
    with pytest.raises(KernelError) as caught:
        run_case(sim, kernel, fault)
    assert kind in {error.kind for error in caught.value.errors}
    assert sim.counters()[-1]["mte3_calls"] == sim_calls(sim, kernel)


def sim_calls(sim: Simulator, kernel: str) -> int:
    """Copies to global memory of the kernel without a fault."""
    run_case(sim, kernel, 0)
    return sim.counters()[-1]["mte3_calls"]


@pytest.mark.parametrize(("fault", "line"), [(0, None), (1, "b.out.GetValue(8)"), (2, "b.dst.GetValue(16)")])
def test_the_access_that_conflicts_is_named_and_not_the_last_one(sim: Simulator, fault: int, line: str | None) -> None:
    src, dst = aligned(ELEMS), aligned(ELEMS)
    sim.register(src.ctypes.data, src.nbytes, "src")
    sim.register(dst.ctypes.data, dst.nbytes, "dst")
    sim.launch("scalar_reads", 1, src.ctypes.data, dst.ctypes.data, fault)
    if line is None:
        assert sim.errors() == []
        return
    (error,) = sim.errors()
    source = (Path(__file__).parent / "kernels" / "order_cases.cpp").read_text().splitlines()
    number = 1 + next(i for i, text in enumerate(source) if line in text)
    assert f"GetValue (order_cases.cpp:{number}) on pipe S reads" in error.message


@pytest.mark.parametrize(("way", "right"), [(0, True), (1, False)])
def test_queue_buffers_come_in_turn(sim: Simulator, way: int, right: bool) -> None:
    src, dst = aligned(ELEMS), aligned(ELEMS)
    src[:], dst[:] = np.arange(ELEMS), -1
    sim.register(src.ctypes.data, src.nbytes, "src")
    sim.register(dst.ctypes.data, dst.nbytes, "dst")
    sim.launch("queue_turns", 1, src.ctypes.data, dst.ctypes.data, way)
    assert {error.kind for error in sim.errors()} == (set() if right else {"read.unwritten", "store.unwritten"})
    assert not right or dst.tolist() == src.tolist()


@pytest.mark.parametrize(("elems", "kind", "warned"), [(64, None, False), (63, None, True), (0, "gm.output", False)])
def test_outputs_that_nothing_writes(sim: Simulator, elems: int, kind: str | None, warned: bool) -> None:
    src, dst = aligned(ELEMS), np.zeros(64, dtype=np.int32)
    sim.register(src.ctypes.data, src.nbytes, "src")
    sim.register(dst.ctypes.data, dst.nbytes, "dst", initialised=False)
    status = sim.launch("write_some", 1, src.ctypes.data, dst.ctypes.data, elems)
    assert status == (kind is not None) and len(sim.errors()) == status
    assert all(error.kind == "gm.output_unwritten" and "all, 256 of the 256" in error.message for error in sim.errors())
    assert [(warning.kind, "4 of the 256" in warning.message) for warning in sim.warnings()] == (
        [("gm.output_unwritten", True)] if warned else []
    )


def test_suppressions_by_kind_and_line(sim: Simulator) -> None:
    source = (Path(__file__).parent / "kernels" / "order_cases.cpp").read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(source) if "Adds(b.out, b.work, -1, kTile);" in text)
    sim.suppress("order.raw", "kernels/order_cases.cpp", line)
    run_case(sim, "order_vector", 5)
    with pytest.raises(KernelError):
        run_case(sim, "order_vector", 1)
    sim.clear_suppressions()
    for kind, file, number in (("order.war", "", line), ("order.*", "order_cases.cpp", line + 1), ("bounds.*", "", 0)):
        sim.suppress(kind, file, number)
        with pytest.raises(KernelError):
            run_case(sim, "order_vector", 5)
    sim.suppress("order.*")
    run_case(sim, "order_vector", 5)
    # What ends a block is said whatever is suppressed.
    sim.suppress("*")
    with pytest.raises(KernelError, match=r"flag\.wait_unset"):
        run_case(sim, "flag_cases", 2)


@pytest.mark.skipif(shutil.which("addr2line") is None, reason="needs addr2line of binutils")
def test_suppression_of_a_line_that_calls_a_helper(sim: Simulator) -> None:
    source = (Path(__file__).parent / "kernels" / "order_cases.cpp").read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(source) if "Store(b.dst[tile * kTile], b.out, kTile);" in text)
    sim.suppress("order.raw", "order_cases.cpp", line)
    run_case(sim, "order_vector", 2)


def test_a_full_list_of_errors_does_not_hide_the_next_launch(sim: Simulator) -> None:
    sim.library.ascend_sim_set_max_errors(1)
    try:
        for fault in (1, 2):
            with pytest.raises(KernelError):
                run_case(sim, "order_vector", fault)
            src = aligned(ELEMS)
            assert sim.launch("order_copies", 1, src.ctypes.data, src.ctypes.data, 1) == 1
    finally:
        sim.library.ascend_sim_set_max_errors(64)


def test_foreign_read_is_caught_in_both_orders(sim: Simulator) -> None:
    for order, kind in (("ascending", "blocks.write_of_foreign_read"), ("descending", "blocks.write_of_foreign_read")):
        sim.configure(order=order)
        with pytest.raises(KernelError) as caught:
            run_case(sim, "block_cases", 2)
        kinds = {error.kind for error in caught.value.errors}
        assert kind in kinds or "blocks.read_of_foreign_write" in kinds


def test_order_between_scalar_and_vector_is_assumed_when_not_strict(sim: Simulator) -> None:
    sim.configure(strict=False)
    for kernel, fault in (("order_vector", 5), ("order_scalar", 1), ("order_scalar", 2), ("order_scalar", 3)):
        run_case(sim, kernel, fault)
    for fault in (1, 2, 3, 4):
        with pytest.raises(KernelError):
            run_case(sim, "order_vector", fault)


@pytest.mark.parametrize(("way", "kind"), [(0, "order.raw"), (1, "order.war")])
def test_inserted_synchronisation_orders_whole_pipes(sim: Simulator, way: int, kind: str) -> None:
    src, dst = aligned(ELEMS), aligned(ELEMS)
    sim.register(src.ctypes.data, src.nbytes, "src")
    sim.register(dst.ctypes.data, dst.nbytes, "dst")
    for strict, fault, verdict in ((False, 0, set()), (False, 1, {kind}), (True, 1, {kind})):
        sim.configure(strict=strict)
        sim.clear_errors()
        sim.launch("order_by_compiler", 1, src.ctypes.data, dst.ctypes.data, way, fault)
        assert {error.kind for error in sim.errors()} == verdict


def test_the_compiler_orders_scalar_reads_of_global_memory_and_no_stores(sim: Simulator) -> None:
    sim.configure(strict=False)
    src, dst = aligned(ELEMS), aligned(ELEMS)
    sim.register(src.ctypes.data, src.nbytes, "src")
    sim.register(dst.ctypes.data, dst.nbytes, "dst")
    # Read by S, then written by a copy.
    assert sim.launch("scalar_reads", 1, src.ctypes.data, dst.ctypes.data, 2) == 0
    # Written by a copy, then read by S: in order, but nobody has cleaned the cache line since.
    with pytest.raises(KernelError) as caught:
        run_case(sim, "cache_cases", 1)
    assert {error.kind for error in caught.value.errors} == {"gm.stale"}
    # Written by S over what a copy writes.
    with pytest.raises(KernelError) as caught:
        run_case(sim, "cache_cases", 7)
    assert {error.kind for error in caught.value.errors} == {"order.gm_waw", "gm.line_shared"}


def test_results_of_the_corrected_kernels(sim: Simulator) -> None:
    src = np.arange(3, 3 + ELEMS)
    assert run_case(sim, "order_vector", 0)[:128].tolist() == (src[:128] + 1).tolist()
    scalar = run_case(sim, "order_scalar", 0)
    assert scalar[:64].tolist() == (src[:64] + 3 + 1).tolist()
    assert scalar[64:128].tolist() == (src[64:128] + 67 + 1).tolist()
    assert scalar[128:130].tolist() == [3, 3] and scalar[136:138].tolist() == [67, 67]
    assert run_case(sim, "queue_cases", 0)[:192].tolist() == (src[:192] + 1).tolist()
    assert run_case(sim, "bound_queue", 4).tolist() == src.tolist()
    met = run_case(sim, "sync_cases", 0)
    assert met[32:64].tolist() == np.roll(src[:32], -8).tolist()
    assert run_case(sim, "atomic_sum", 0)[:8].tolist() == (src[:8] * 4 - 1).tolist()


@pytest.mark.skipif(shutil.which("addr2line") is None, reason="needs addr2line of binutils")
def test_a_helper_names_the_line_that_used_it(sim: Simulator) -> None:
    with pytest.raises(KernelError) as caught:
        run_case(sim, "order_vector", 2)
    (error,) = [error for error in caught.value.errors if error.kind == "order.raw"]
    source = (Path(__file__).parent / "kernels" / "order_cases.cpp").read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(source) if "Store(b.dst[tile * kTile], b.out, kTile);" in text)
    assert error.file.endswith("case.h") and f"order_cases.cpp:{line}" in error.chain.split(", ")


def test_block_dim_is_checked(sim: Simulator) -> None:
    for block_dim in (0, 65536):
        sim.clear_errors()
        assert sim.launch("atomic_sum", block_dim, 0, 0, 0) == 1
        assert [error.kind for error in sim.errors()] == ["launch.block_dim"]

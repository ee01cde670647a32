"""The launch stubs: what signatures are accepted, what is refused and why, and launches that run later."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from ascend_sim.generate_stubs import SignatureError, header_text, parse_source, stub_text
from ascend_sim.simulator import KernelError, Simulator


def parse(tmp_path: Path, signature: str, before: str = "") -> object:
    source = tmp_path / "k.cpp"
    source.write_text(f'#include "kernel_operator.h"\n{before}\n{signature} {{\n}}\n')
    return parse_source(source, [tmp_path])


def kernel(parameters: str) -> str:
    return f'extern "C" __global__ __aicore__ void k({parameters})'


ACCEPTED = "GM_ADDR a, __gm__ uint8_t* b, const int32_t n, uint64_t m, float f, bool g, P p"


def test_signature_of_the_launch_function(tmp_path: Path) -> None:
    (tmp_path / "p.h").write_text("struct Q {\n    int32_t x;\n};\nstruct P {\n    Q q;\n    int64_t y;\n};\n")
    (found,) = parse(tmp_path, kernel(ACCEPTED), '#include "p.h"')
    expected = (
        'extern "C" uint32_t aclrtlaunch_k(uint32_t blockDim, aclrtStream stream, void* a, void* b, int32_t n, '
        "uint64_t m, float f, bool g, P* p);"
    )
    assert expected in header_text(found)
    assert list(found.structs) == ["Q", "P"]
    assert "struct Q" in stub_text([found])


@pytest.mark.parametrize(
    ("parameters", "before", "why"),
    [
        ("uint8_t *x", "", "attached to the type"),
        ("unsigned int n", "", "3 words"),
        ("long long n", "", "3 words"),
        ("half h", "", "'half' is unknown"),
        ("int n", "", "'int' is unknown"),
        ("int32_t& n", "", "references"),
        ("ns::P p", "namespace ns {\nstruct P {\n    int32_t x;\n};\n}", "qualified"),
        ("P p", "namespace ns {\nstruct P {\n    int32_t x;\n};\n}", "plain global"),
        ("P p", "struct alignas(8) P {\n    int32_t x;\n};", "plain global"),
        ("P p", "struct Q {\n    int32_t x;\n};\nstruct P : Q {\n    int32_t y;\n};", "plain global"),
        ("P p", "typedef struct {\n    int32_t x;\n} P;", "typedef"),
        ("P p", "class P {\n    int32_t x;\n};", "plain global"),
        ("P p", "struct P {\n    int32_t x;\n    int32_t Get() const { return x; }\n};", "functions"),
    ],
)
def test_refused_signatures(tmp_path: Path, parameters: str, before: str, why: str) -> None:
    with pytest.raises(SignatureError, match=why):
        parse(tmp_path, kernel(parameters), before)


@pytest.mark.parametrize(
    "signature",
    [
        'extern "C" __global__ __aicore__ int32_t k(GM_ADDR a)',
        "__global__ __aicore__ void k(GM_ADDR a)",
    ],
)
def test_refused_entries(tmp_path: Path, signature: str) -> None:
    with pytest.raises(SignatureError):
        parse(tmp_path, signature)


BY_MACRO = """#include "macros.h"
ENTRY(first)(GM_ADDR a, int32_t n) {
}
ENTRY(second)(GM_ADDR a)
{
}
"""


@pytest.mark.parametrize(
    "macros",
    [
        '#define ENTRY(name) extern "C" __global__ __aicore__ void name',
        '#define KERNEL extern "C" __global__ \\\n    __aicore__ void\n#define ENTRY(name) KERNEL name',
    ],
)
def test_kernels_declared_by_macro(tmp_path: Path, macros: str) -> None:
    (tmp_path / "macros.h").write_text(macros + "\n")
    source = tmp_path / "k.cpp"
    source.write_text(BY_MACRO)
    assert [(kernel.name, len(kernel.parameters)) for kernel in parse_source(source, [tmp_path])] == [
        ("first", 2),
        ("second", 1),
    ]
    # In the source itself, and unused there.
    source.write_text(BY_MACRO.replace('#include "macros.h"', macros))
    assert len(parse_source(source, [tmp_path])) == 2
    source.write_text(f"{macros}\n")
    assert parse_source(source, [tmp_path]) == []
    (tmp_path / "macros.h").write_text(macros.replace(' "C"', ""))
    source.write_text(BY_MACRO)
    with pytest.raises(SignatureError, match=r"\['first', 'second'\] not written as"):
        parse_source(source, [tmp_path])
    source.write_text(BY_MACRO + "#error no\n")
    with pytest.raises(SignatureError, match="cannot be preprocessed"):
        parse_source(source, [tmp_path])


class Range(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int32), ("elems", ctypes.c_uint32))


class Plan(ctypes.Structure):
    _fields_ = (("range", Range), ("bias", ctypes.c_int64))


def buffers(sim: Simulator) -> tuple[np.ndarray, np.ndarray]:
    src, dst = np.arange(256, dtype=np.int32), np.full(256, -1, dtype=np.int32)
    sim.register(src.ctypes.data, src.nbytes, "src")
    sim.register(dst.ctypes.data, dst.nbytes, "dst")
    return src, dst


def test_struct_argument(sim: Simulator) -> None:
    src, dst = buffers(sim)
    sim.run("struct_argument", 1, src.ctypes.data, Plan(Range(3, 5), 100), dst.ctypes.data)
    assert dst[:9].tolist() == [-1, -1, -1, 103, 104, 105, 106, 107, -1]


def test_a_launcher_runs_launches_later_and_again(sim: Simulator) -> None:
    src, dst = buffers(sim)
    run_type = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
    destroy_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    launcher_type = ctypes.CFUNCTYPE(None, run_type, destroy_type, ctypes.c_void_p, ctypes.c_void_p)
    waiting: list[tuple] = []
    launcher = launcher_type(lambda run, destroy, task, stream: waiting.append((run, destroy, task, stream)))
    sim.library.ascend_sim_set_launcher(launcher)
    try:
        plan = Plan(Range(0, 2), 10)
        sim.run("struct_argument", 1, src.ctypes.data, plan, dst.ctypes.data)
        plan.bias = 1000  # the launch has its own copy
        assert dst[:2].tolist() == [-1, -1]
        ((run, destroy, task, _),) = waiting
        assert run(task) == 0 and dst[:3].tolist() == [10, 11, -1]
        src[:2] = 5
        assert run(task) == 0 and dst[:3].tolist() == [15, 15, -1]
        destroy(task)
    finally:
        sim.library.ascend_sim_set_launcher(ctypes.cast(None, launcher_type))
    assert len(sim.counters()) == 2


def test_device_addresses_that_the_host_cannot_read(sim: Simulator) -> None:
    src, dst = np.arange(64, dtype=np.int32), np.full(64, -1, dtype=np.int32)
    device = 0x100000000000
    sim.register_mapped(device, src.ctypes.data, src.nbytes, "src")
    sim.register_mapped(device + 4096, dst.ctypes.data, dst.nbytes, "dst")
    sim.run("struct_argument", 1, device, Plan(Range(0, 8), 1), device + 4096)
    assert dst[:9].tolist() == [*range(1, 9), -1]


def test_memory_nobody_wrote_must_not_be_stored(sim: Simulator) -> None:
    src, dst = np.arange(256, dtype=np.int32), np.zeros(256, dtype=np.int32)
    sim.register(src.ctypes.data, src.nbytes, "src", initialised=False)
    sim.register(dst.ctypes.data, dst.nbytes, "dst", initialised=False)
    with pytest.raises(KernelError, match=r"store\.unwritten"):
        sim.run("struct_argument", 1, src.ctypes.data, Plan(Range(0, 8), 1), dst.ctypes.data)


def test_counters_of_one_launch(sim: Simulator) -> None:
    src, dst = buffers(sim)
    sim.run("bound_queue", 1, src.ctypes.data, dst.ctypes.data, 3)
    (counters,) = sim.counters()
    assert counters["simulated"] is True and counters["blocks"] == 1
    assert (counters["mte2_calls"], counters["mte2_bytes"]) == (3, 768)
    assert (counters["mte3_calls"], counters["mte3_bytes"]) == (3, 768)
    assert counters["vector_calls"] == 0 and counters["ub_peak_bytes"] == 512
    assert counters["flags_set"] == 6
    assert counters["balance"] == {"most_bytes": 1536, "least_bytes": 1536, "idle_blocks": 0}
    assert set(counters["model_cycles"]) == {"end", "cold", "S", "V", "MTE2", "MTE3"}

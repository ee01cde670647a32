"""Times and code sizes of the kernels by the simulator's time model stay within what docs/simulated_cost.md says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

import model_times
import npu_first_measurements

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.simulated_only,
    pytest.mark.skipif("DSV4_BUILD_ROOT" in os.environ, reason="an instrumented build has other code"),
]

# The model counts instructions that the compiler of this machine makes.
COMPILERS = 1.1
MEASURE = """
import dataclasses, json, sys
sys.path.append(sys.argv[1])
import model_times

device = model_times.device_with_code()
times = [model_times.model_time(case, device) for case in model_times.cases()]
print(json.dumps({
    "times": [dataclasses.asdict(time) for time in times],
    "first": model_times.first_measurements(device),
    "code_kb": model_times.code_sizes(),
}))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """In a process of its own: the table of instructions stays loaded."""
    command = [sys.executable, "-c", MEASURE, str(ROOT / "bench")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def times(found: dict[str, Any]) -> list[model_times.ModelTime]:
    return [model_times.ModelTime(**time) for time in found["times"]]


def test_kernels_are_within_the_reviews_targets(times: list[model_times.ModelTime]) -> None:
    shares = model_times.shares_of_allowed(times)
    assert shares.keys() == model_times.EXCELLENT.keys()
    beyond = {name for name, (_, _, *share) in shares.items() if max(share) > COMPILERS}
    # Its page tables alone take the stores of all cores for as long as is allowed.
    assert beyond == {"step all, verify B={} n=4 context=1048576"}
    assert shares["step all, verify B={} n=4 context=1048576"][2] <= COMPILERS


def test_a_speculative_round_is_within_its_target(times: list[model_times.ModelTime]) -> None:
    rounds = model_times.rounds(times)
    for rows, wanted in zip(model_times.ROWS, (32, 45), strict=True):
        assert 0 < rounds[rows, model_times.CONTEXT] <= wanted
        assert rounds[rows, model_times.CONTEXT] < rounds[rows, model_times.MILLION] <= 1.5 * wanted


def test_kernels_of_a_decode_step_fit_into_the_instruction_cache(found: dict[str, Any]) -> None:
    sizes = {kernel: found["code_kb"][kernel] for kernel in model_times.DECODE_KERNELS}
    assert all(0 < size <= COMPILERS * model_times.CACHE_KB for size in sizes.values()), sizes


def test_what_the_first_measurements_are_compared_with_is_what_the_model_says(found: dict[str, Any]) -> None:
    said = json.loads(npu_first_measurements.MODEL.read_text())
    assert said.keys() == found["first"].keys()
    for name, us in said.items():
        assert found["first"][name] == pytest.approx(us, rel=COMPILERS - 1), name


KERNELS = sorted((ROOT / "csrc" / "ops").glob("*/*_kernel.cpp"))
ENTRY = re.compile(
    r'extern "C" __global__ __aicore__ void \w+\(([^)]*)\) \{\s*'
    r"KERNEL_TASK_TYPE_DEFAULT\(KERNEL_TYPE_AIV_ONLY\);\s*"
    r"dsv4::kernel::preload_launch\(([^;]*), (\d)\);"
)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.stem)
def test_a_kernel_preloads_its_arguments_and_code(kernel: Path, found: dict[str, Any]) -> None:
    entry = ENTRY.search(kernel.read_text())
    assert entry, "the first statement of a kernel is preload_launch"
    types = [parameter.split()[0] for parameter in entry[1].split(",")]
    addresses = types.count("GM_ADDR")
    structs = [f"sizeof({name})" for name in types if name != "GM_ADDR"]
    sizes = ["sizeof(GM_ADDR)" if addresses == 1 else f"{addresses} * sizeof(GM_ADDR)", *structs]
    assert " ".join(entry[2].split()) == " + ".join(sizes)
    # What lies behind a kernel is somebody else's code, or nothing.
    units, size = int(entry[3]), found["code_kb"][kernel.stem.removesuffix("_kernel")]
    if size > 1.5 * model_times.CACHE_KB:
        assert units == 0
    else:
        assert size / 2 / 1.5 - 1 <= units <= max(1, size / 2 * COMPILERS)

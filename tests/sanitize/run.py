"""Tests over an instrumented build: python tests/sanitize/run.py <address|thread|coverage> [part ..]

A part is a run of pytest. The program prints what each has cost and what the sanitizers have reported, and fails when a
test failed or anything was reported.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from dataclasses import dataclass, field

from coverage_report import report_coverage
from instrumented import ROOT, Build

PARALLEL = ("-n", "auto", "--maxprocesses", "8")
SERIAL = ("-n", "0")  # a worker of xdist would have one OpenMP thread


@dataclass(frozen=True)
class Part:
    """One run of pytest. Hypothesis draws as few examples as for mutants: a fault of memory needs no rare values."""

    paths: tuple[str, ...]
    options: tuple[str, ...] = PARALLEL
    variables: dict[str, str] = field(default_factory=dict)


QUICK = ("-m", "not thorough", "--hypothesis-profile", "narrow")
KERNELS = {"DSV4_BACKEND": "ascend-sim", "DSV4_SIM_BLOCKS": "0,7"}
NPU = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
# Freed memory is kept to find uses of it: what measures the process is not run.
NOT_MEMORY = ("--deselect", "tests/cache/test_allocator_steps.py::test_many_steps_with_an_eviction_each_grow_nothing")
# The sanitizer's own copy stands between a helper and its caller.
NOT_CALLERS = ("--deselect", "tests/sim/test_faults.py::test_a_helper_names_the_line_that_used_it")
CPU_TESTS = ("tests/ops", "tests/cache", "tests/graph", "tests/disagg", "tests/modes")

PARTS: dict[str, dict[str, Part]] = {
    "address": {
        "planted": Part(("tests/sanitize",)),
        "cpu": Part(CPU_TESTS, (*PARALLEL, *NOT_MEMORY)),
        "simulator": Part(("tests/sim",), (*PARALLEL, *NOT_CALLERS)),
        "kernels": Part(("tests/ops", "tests/cache"), (*PARALLEL, *NOT_MEMORY), KERNELS),
        "npu": Part(("tests/npu",), SERIAL, {"DSV4_NPU_SIM": "1", **NPU}),
    },
    "thread": {
        "planted": Part(("tests/sanitize",)),
        "threads": Part(
            ("tests/modes/test_threads.py", "tests/cache/test_allocator_threads.py", "tests/ops/test_launch_dump.py"),
            SERIAL,
        ),
    },
    # What a process has run is written when it ends, and workers of xdist may be ended before.
    "coverage": {
        "cpu": Part((*CPU_TESTS, "tests/test_row_arguments.py"), SERIAL),
        "kernels": Part(("tests/ops", "tests/cache"), SERIAL, {**KERNELS, "DSV4_SIM_BLOCKS": "7"}),
    },
}


def run_part(build: Build, name: str, part: Part) -> bool:
    """Whether all tests passed."""
    paths = [path for path in part.paths if (ROOT / path).exists()]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pytest", *part.options, *QUICK, *paths]
    passed = subprocess.run(command, cwd=ROOT, env=build.environment(**part.variables), check=False).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{build.kind}, {name}: {'passed' if passed else 'FAILED'}, {seconds:.0f} s of processor time", flush=True)
    return passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=PARTS)
    parser.add_argument("parts", nargs="*", help="default: all of the kind")
    arguments = parser.parse_args()
    parts = PARTS[arguments.kind]
    if unknown := set(arguments.parts) - parts.keys():
        parser.error(f"parts are {', '.join(sorted(unknown))}, expected some of {', '.join(parts)}")
    build = Build(arguments.kind)
    build.make()
    build.clear_reports()
    results = [run_part(build, name, parts[name]) for name in arguments.parts or parts]
    for report in build.reported():
        print(f"{report}:\n{report.read_text(errors='replace')}")
    if arguments.kind == "coverage":
        report_coverage(build)
    if not all(results) or build.reported():
        raise SystemExit(f"{len(results) - sum(results)} parts failed, {len(build.reported())} processes reported")


if __name__ == "__main__":
    os.environ.pop("PYTEST_ADDOPTS", None)
    main()

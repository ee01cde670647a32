"""Runs of an op's tests against a given kernel library, each in a fork of this process, which has imported much."""

import ctypes
import os
import resource
from pathlib import Path

import hypothesis  # noqa: F401  (imported once for all runs)
import pytest
import torch

import dsv4_npu_ops  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]

TESTS = {
    "advance_step": ["advance_step", "advance_step_errors", "advance_step_on_device"],
    "reserve_extend": ["page_segments"],
    "release_pages": ["page_segments"],
    "step": ["step", "step_wrappers", "step_on_device"],
    "write_req_tables": ["write_req_tables", "write_req_tables_on_device"],
    "compressor_metadata": ["compressor_metadata", "compressor_metadata_on_device"],
}
"""Test files of ops that have others than the one called after them."""
OP_OF = {"uniform_step": "step"}
"""The op of a kernel that is not called after one."""

NARROW = {"DSV4_SIM_BLOCKS": "0,2", "profile": "narrow"}
FULL = {"DSV4_SIM_BLOCKS": "0,1,2,7,24,48", "profile": "unshrunk"}


def _child(kernel: str, library: Path, blocks: str, profile: str) -> int:
    """Exit status of pytest. The backend finds the library already loaded under its own name."""
    op = OP_OF.get(kernel, kernel)
    os.environ |= {"DSV4_BACKEND": "ascend-sim", "DSV4_SIM_BLOCKS": blocks}
    os.chdir(ROOT)
    ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    files = [str(ROOT / "tests" / "ops" / f"test_{name}.py") for name in TESTS.get(op, [op])]
    if profile == FULL["profile"] and (ROOT / "bench" / "naive" / f"{op}_kernel.cpp").exists():
        # Some bounds only keep blocks balanced.
        files.append(f"{ROOT / 'tests' / 'ops' / 'test_simulated_cost.py'}::test_costs_stay_within_limits[{op}]")
    # opcheck is about schemas and takes longer than all other tests together.
    options = ["-x", "-q", "-p", "no:cacheprovider", "-k", "not opcheck", f"--hypothesis-profile={profile}"]
    return int(pytest.main([*options, *files]))


def tests_pass(kernel: str, library: Path, run: dict[str, str], log: Path, cpu_seconds: int) -> bool:
    """Whether the tests of the kernel's op pass with `library`; a crash or a hang is a failure."""
    torch.set_num_threads(1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            # Of processor time, so that a busy machine does not look like a hang.
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
            target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(target, 1)
            os.dup2(target, 2)
            status = _child(kernel, library, run["DSV4_SIM_BLOCKS"], run["profile"])
        finally:
            os._exit(status)
    _, how = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(how) == 0

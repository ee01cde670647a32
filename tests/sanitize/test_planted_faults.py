"""Each sanitizer notices the faults that it is there for, in code that was built like the project's; and no others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dsv4_npu_ops._C

SANITIZER = os.environ.get("DSV4_SANITIZE", "")
FAULTS = {
    "address": {
        "heap_overflow": "heap-buffer-overflow",
        "use_after_free": "heap-use-after-free",
        "stack_overflow": "stack-buffer-overflow",
        "null_memcpy": "null pointer passed as argument 2",
        "signed_overflow": "signed integer overflow",
        "shift_too_far": "shift exponent 40 is too large",
        "division_by_zero": "division by zero",
        "float_to_int": "outside the range of representable values",
        "unaligned_load": "load of misaligned address",
    },
    "thread": {"racing_threads": "data race", "racing_loop": "data race"},
}
INSTRUMENTED = {"address": b"__asan_report_load", "thread": b"__tsan_func_entry"}


def call(function: str, tmp_path: Path) -> str:
    """What a process reports that loads torch and calls one planted function."""
    library = Path(os.environ["DSV4_BUILD_ROOT"]) / "libplanted_faults.so"
    # torch first, for its OpenMP runtime.
    script = f"import ctypes, torch; ctypes.CDLL({str(library)!r}).{function}()"
    environment = dict(os.environ)
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
        if name in environment:
            environment[name] = f"{environment[name]}:log_path={tmp_path / 'report'}"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    return done.stderr + "".join(report.read_text() for report in tmp_path.glob("report*"))


@pytest.mark.parametrize("function", FAULTS.get(SANITIZER, ()))
def test_a_planted_fault_is_reported(function, tmp_path):
    assert FAULTS[SANITIZER][function] in call(function, tmp_path)


def test_a_loop_over_threads_is_no_race(tmp_path):
    """What OpenMP orders is known, so that a report of a loop means something."""
    assert call("ordered_loop", tmp_path) == ""


def test_the_extension_in_this_process_is_instrumented():
    """Otherwise nothing that these runs say would mean anything."""
    library = Path(dsv4_npu_ops._C.__file__).resolve()
    assert Path(os.environ["DSV4_BUILD_ROOT"]).resolve() in library.parents
    assert INSTRUMENTED[SANITIZER] in library.read_bytes()
    assert torch.ops.dsv4_npu_ops.rope_gather(torch.ones(2, 2), torch.ones(2, 2), torch.tensor([1]))[0].tolist()

"""The backend that this run tests, from DSV4_BACKEND: each backend is a run of its own over the same tests."""

import os

import pytest

BACKEND = os.environ.get("DSV4_BACKEND", "cpu")
EXAMPLES = {"cpu": 50, "ascend-sim": 10, "npu-sim": 3, "npu": 20}  # hypothesis examples of a test
if BACKEND not in EXAMPLES:
    raise pytest.UsageError(f"DSV4_BACKEND is {BACKEND!r}, expected one of {', '.join(EXAMPLES)}")

KERNEL_SIM = BACKEND == "ascend-sim"
NPU = BACKEND in ("npu", "npu-sim")

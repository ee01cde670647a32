"""The backend that this run tests, from DSV4_BACKEND: each backend is a run of its own over the same tests."""

import os
from typing import Any

import pytest
import torch

BACKEND = os.environ.get("DSV4_BACKEND", "cpu")
EXAMPLES = {"cpu": 50, "ascend-sim": 10, "npu-sim": 3, "npu": 20}  # hypothesis examples of a test
if BACKEND not in EXAMPLES:
    raise pytest.UsageError(f"DSV4_BACKEND is {BACKEND!r}, expected one of {', '.join(EXAMPLES)}")

KERNEL_SIM = BACKEND == "ascend-sim"
NPU = BACKEND in ("npu", "npu-sim")


def opcheck(op: Any, *arguments: Any) -> None:
    """torch.library.opcheck; on a device only what its kernels matter to, that they write what the schema says."""
    if BACKEND == "cpu":
        torch.library.opcheck(op, *arguments)
    else:
        torch.library.opcheck(op, *arguments, test_utils="test_schema")

"""Uninitialised buffers of results, made in one call: ``torch.empty`` for each takes longer than many an op."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

DTYPES: tuple[torch.dtype, ...] = (
    torch.int32,
    torch.int64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.uint8,
    torch.int8,
)
"""In the order of the numbers by which the op knows them (csrc/torch/empty_tensors.cpp)."""

INT32, INT64, FLOAT32 = range(3)

Buffer = tuple[int, ...]
"""Number of a dtype, and sizes."""

GROUPS: dict[str, int] = {"c4": -4, "c128": -128}
"""Sizes that stand for as many entries as a step completes groups, by pool: ``step.new`` counts them on the host
(csrc/ops/step/step.h)."""


def number_of(dtype: torch.dtype) -> int:
    """The number of a dtype.

    Raises:
        ValueError: it is not among those above.
    """
    if dtype not in DTYPES:
        raise ValueError(f"empty: dtype is {dtype}, expected one of {', '.join(map(str, DTYPES))}")
    return DTYPES.index(dtype)


def empty_tensors(buffers: Iterable[Buffer], device: torch.device | str) -> list[Tensor]:
    """Allocates the buffers on a device."""
    if torch.compiler.is_compiling():
        # Sizes may be symbols.
        return [torch.empty(shape, dtype=DTYPES[dtype], device=device) for dtype, *shape in buffers]
    return torch.ops.dsv4_npu_ops.empty_tensors.default(numbers_of(buffers), torch.device(device))


def numbers_of(buffers: Iterable[Buffer]) -> list[int]:
    """The buffers as ops take them: of each how many numbers follow, and these."""
    numbers: list[int] = []
    for buffer in buffers:
        numbers += (len(buffer), *buffer)
    return numbers

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

_NUMBERS = {dtype: number for number, dtype in enumerate(DTYPES)}

Buffer = tuple[torch.dtype, tuple[int, ...]]
"""Dtype and shape of a buffer."""


def empty_tensors(buffers: Iterable[Buffer], device: torch.device | str) -> list[Tensor]:
    """Allocates the buffers on a device.

    Raises:
        ValueError: another dtype than those above.
    """
    if torch.compiler.is_compiling():
        # Sizes may be symbols.
        return [torch.empty(shape, dtype=dtype, device=device) for dtype, shape in buffers]
    numbers: list[int] = []
    for dtype, shape in buffers:
        if dtype not in _NUMBERS:
            raise ValueError(f"empty: dtype is {dtype}, expected one of {', '.join(map(str, DTYPES))}")
        numbers += (_NUMBERS[dtype], len(shape), *shape)
    return torch.ops.dsv4_npu_ops.empty_tensors.default(numbers, torch.device(device))

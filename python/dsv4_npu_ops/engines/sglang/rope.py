"""RoPE rows of cosine and sine, by one launch for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected
from dsv4_npu_ops.engines.sglang.shadow import compare
from dsv4_npu_ops.ops import rope_gather

_ROPE = "sglang.srt.hardware_backend.npu.dsv4.dsv4_rope.Dsv4NpuRoPE"
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def get_cos_sin(
    original: Callable[..., Any],
    self: Any,
    positions: Tensor,
    dtype: torch.dtype,
    *,
    view_4d: bool = False,
    inverse: bool = False,
    allow_build: bool = True,
    cache_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """``Dsv4NpuRoPE.get_cos_sin``; tables are built and kept by SGLang."""
    if positions.dim() != 1 or not positions.is_contiguous() or dtype not in _DTYPES:
        raise Unexpected(f"positions of {positions.dim()} dimensions, or rows of {dtype}")
    cos, sin = self.ensure_tables(dtype if cache_dtype is None else cache_dtype, allow_build=allow_build)
    return rope_gather(cos, sin, positions, inverse=inverse, dtype=dtype, view_4d=view_4d)


def shadow_get_cos_sin(
    original: Callable[..., Any], self: Any, positions: Tensor, dtype: torch.dtype, **options: Any
) -> tuple[Tensor, Tensor]:
    """SGLang's rows are used; ours are gathered beside them and compared."""
    theirs = original(self, positions, dtype, **options)

    def again() -> tuple[Tensor, Tensor]:
        return get_cos_sin(original, self, positions, dtype, **options)

    compare(
        "get_cos_sin",
        dict(zip(("cos", "sin"), theirs, strict=True)),
        dict(zip(("cos", "sin"), again(), strict=True)),
        again,
    )
    return theirs


HOOKS = (Hook(f"{_ROPE}.get_cos_sin", get_cos_sin, "0.5.18", "0.5.23", shadow_get_cos_sin),)

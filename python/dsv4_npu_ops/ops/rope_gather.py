"""RoPE row gather: wrapper and fake kernel of ``torch.ops.dsv4_npu_ops.rope_gather``."""

import torch
from torch import Tensor

from dsv4_npu_ops.ops.caller_errors import caller_errors
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only


@caller_errors(out={"cos_out": "out[0]", "sin_out": "out[1]"})
def rope_gather(
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    *,
    inverse: bool = False,
    dtype: torch.dtype | None = None,
    view_4d: bool = False,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Rows of both RoPE tables at the given positions, in one launch.

    Args:
        cos, sin: tables ``[max_pos, D]`` of float32, float16 or bfloat16, contiguous (see ``build_rope_tables``).
        positions: ``[T]`` int32 or int64 raw positions on the tables' device.
        inverse: negates the sin rows, which turns a rotation back.
        dtype: dtype of the rows; default that of the tables. Ignored with ``out``.
        view_4d: returns views of shape ``[T, 1, 1, D]``.
        out: ``(cos, sin)`` buffers ``[T, D]``, contiguous, that are overwritten; nothing is allocated.

    Returns:
        ``(cos_rows, sin_rows)``, each ``[T, D]``, or ``[T, 1, 1, D]`` with ``view_4d``.

    Raises:
        ValueError: wrong dtype, shape or device; nothing was written.
        IndexError: on a CPU, a position outside ``[0, max_pos)``; nothing was written. On an NPU that row is NaN.

    Source: docs/spec.md, RoPE.
    """
    if out is None:
        rows = torch.ops.dsv4_npu_ops.rope_gather(cos, sin, positions, inverse=inverse, dtype=dtype)
    else:
        torch.ops.dsv4_npu_ops.rope_gather.out(cos, sin, positions, inverse=inverse, cos_out=out[0], sin_out=out[1])
        rows = out
    if view_4d:
        return rows[0][:, None, None, :], rows[1][:, None, None, :]
    return rows


@fake_kernel("rope_gather")
def _(
    cos: Tensor, sin: Tensor, positions: Tensor, *, inverse: bool = False, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    shape = (positions.shape[0], cos.shape[1])
    return cos.new_empty(shape, dtype=dtype), cos.new_empty(shape, dtype=dtype)


fake_kernel("rope_gather.out")(writes_only)

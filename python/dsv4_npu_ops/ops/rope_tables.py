"""RoPE tables: wrapper and fake kernels of ``torch.ops.dsv4_npu_ops.rope_tables``."""

import torch
from torch import Tensor

from dsv4_npu_ops.ops.caller_errors import caller_errors
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only


@caller_errors(out={"cos_out": "out[0]", "sin_out": "out[1]"})
def build_rope_tables(
    freqs_cis: Tensor, dtype: torch.dtype = torch.float32, *, out: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """The cos and sin tables that ``rope_gather`` reads: each pair's value twice, (c0, c0, c1, c1, ..).

    Args:
        freqs_cis: ``[max_pos, D / 2]`` complex64 (see ``build_freqs_cis``), the elements of a row next to each other.
        dtype: of the tables, float32, float16 or bfloat16; each value is rounded once. Ignored with ``out``.
        out: ``(cos, sin)`` buffers ``[max_pos, D]``, contiguous, that are overwritten; nothing is allocated.

    Returns:
        ``(cos, sin)``, each ``[max_pos, D]``, on the device of ``freqs_cis``.

    Raises:
        ValueError: wrong dtype, shape, device or strides; nothing was written.

    Source: docs/spec.md, RoPE.
    """
    if out is None:
        return torch.ops.dsv4_npu_ops.rope_tables(freqs_cis, dtype=dtype)
    torch.ops.dsv4_npu_ops.rope_tables.out(freqs_cis, cos_out=out[0], sin_out=out[1])
    return out


@fake_kernel("rope_tables")
def _(freqs_cis: Tensor, *, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    shape = (freqs_cis.shape[0], 2 * freqs_cis.shape[1])
    return freqs_cis.new_empty(shape, dtype=dtype), freqs_cis.new_empty(shape, dtype=dtype)


fake_kernel("rope_tables.out")(writes_only)

"""In-place rotation: wrapper and fake kernel of ``torch.ops.dsv4_npu_ops.apply_rotary``."""

import torch
from torch import Tensor

from dsv4_npu_ops.ops.caller_errors import caller_errors
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only


@caller_errors()
def apply_rotary(q: Tensor | None, kv: Tensor | None, cos: Tensor, sin: Tensor, *, inverse: bool = False) -> None:
    """Rotates the last D features of every head in place, in adjacent pairs.

    A pair (a, b) becomes (a cos - b sin, b cos + a sin), the complex product with ``cos + i sin``. Features enter as
    float32, products and sum are float32, and the result is rounded once to the tensor's dtype. In a float64 tensor
    features are rounded to float32 on the way in and the rest is float64, as transformers does it.

    Args:
        q: ``[T, H, head_dim]`` or ``[T, head_dim]``, float32, float16, bfloat16 or float64; mutated. The features of a
            head lie next to each other, tokens and heads may be strided. None leaves it out.
        kv: the same, usually ``[T, head_dim]`` or ``[T, 1, head_dim]``; mutated. Its sizes and dtype are its own.
        cos, sin: rows ``[T, D]`` or ``[T, 1, 1, D]`` of float32, float16 or bfloat16 (see ``rope_gather``), D even and
            at most ``head_dim``; on the device of q and kv.
        inverse: rotates back; the same as passing rows gathered with ``inverse=True``.

    Raises:
        ValueError: wrong dtype, shape, device or strides, memory shared within q or kv or between them, or neither
            given; nothing was written.

    Source: docs/spec.md, RoPE.
    """
    torch.ops.dsv4_npu_ops.apply_rotary(q, kv, cos, sin, inverse=inverse)


fake_kernel("apply_rotary")(writes_only)

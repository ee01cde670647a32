"""In-place rotation against slicing, rotating pairs with stack, and writing back."""

from collections.abc import Iterator

import torch
from harness import Case

import dsv4_npu_ops


def _rotate_plain(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    rope = x[..., -cos.shape[-1] :].float()
    turned = torch.stack((-rope[..., 1::2], rope[..., ::2]), -1).flatten(-2)
    x[..., -cos.shape[-1] :] = (rope * cos[:, None] + turned * sin[:, None]).to(x.dtype)


def cases() -> Iterator[Case]:
    """A decode batch and a verify batch of 64 heads."""
    heads, head_dim, dim = 64, 512, 64
    for tokens in (64, 256):
        for dtype in (torch.float32, torch.bfloat16):
            q = torch.randn(tokens, heads, head_dim).to(dtype)
            kv = torch.randn(tokens, 1, head_dim).to(dtype)
            angles = torch.rand(tokens, dim // 2).repeat_interleave(2, -1)
            cos, sin = angles.cos(), angles.sin()

            def ours(q=q, kv=kv, cos=cos, sin=sin) -> None:
                dsv4_npu_ops.apply_rotary(q, kv, cos, sin)

            def plain(q=q, kv=kv, cos=cos, sin=sin) -> None:
                _rotate_plain(q, cos, sin)
                _rotate_plain(kv, cos, sin)

            name = str(dtype).removeprefix("torch.")
            yield Case("apply_rotary", f"T={tokens} H={heads} D={dim} {name}", ours, plain, "slice, stack, write back")

"""RoPE tables against repeat_interleave of both parts; done once a model, so its speed hardly matters."""

from collections.abc import Iterator

import torch
from harness import Case

import dsv4_npu_ops


def cases() -> Iterator[Case]:
    """Tables of 65536 positions."""
    max_pos, pairs = 65536, 32
    freqs_cis = torch.randn(max_pos, pairs, dtype=torch.complex64)
    for dtype in (torch.float32, torch.bfloat16):

        def plain(dtype: torch.dtype = dtype) -> tuple[torch.Tensor, torch.Tensor]:
            return freqs_cis.real.repeat_interleave(2, -1).to(dtype), freqs_cis.imag.repeat_interleave(2, -1).to(dtype)

        def ours(dtype: torch.dtype = dtype) -> tuple[torch.Tensor, torch.Tensor]:
            return dsv4_npu_ops.build_rope_tables(freqs_cis, dtype)

        name = str(dtype).removeprefix("torch.")
        shape = f"max_pos={max_pos} D={2 * pairs} {name}"
        yield Case("rope_tables", shape, ours, plain, "repeat_interleave", num_outputs=2)

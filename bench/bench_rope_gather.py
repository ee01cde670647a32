"""RoPE row gather against torch indexing and against copying the same bytes."""

from collections.abc import Iterator

import torch
from harness import Case

import dsv4_npu_ops


def cases() -> Iterator[Case]:
    """8192 rows of 64 float32, sequential and random positions."""
    rows, dim, max_pos = 8192, 64, 65536
    cos, sin = torch.randn(max_pos, dim), torch.randn(max_pos, dim)
    out = (torch.empty(rows, dim), torch.empty(rows, dim))
    sequential = torch.arange(rows)
    scattered = torch.randperm(max_pos)[:rows]

    def copy() -> None:
        out[0].copy_(cos[:rows])
        out[1].copy_(sin[:rows])

    def index() -> tuple[torch.Tensor, torch.Tensor]:
        return cos[scattered], sin[scattered]

    yield Case(
        "rope_gather.out",
        f"T={rows} D={dim} sequential",
        lambda: dsv4_npu_ops.rope_gather(cos, sin, sequential, out=out),
        copy,
        "copy of the same bytes",
        target=0.6,
    )
    yield Case(
        "rope_gather",
        f"T={rows} D={dim} scattered",
        lambda: dsv4_npu_ops.rope_gather(cos, sin, scattered),
        index,
        "cos[positions], sin[positions]",
        num_outputs=2,
    )

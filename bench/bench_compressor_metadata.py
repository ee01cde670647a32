"""Groups, slots and rotations for a block table against a chain of torch operators."""

from collections.abc import Iterator

import torch
from harness import Case

import dsv4_npu_ops

BLOCK_SIZE, DIM, MAX_POS = 128, 64, 65536


def _plain(
    cos: torch.Tensor,
    sin: torch.Tensor,
    cu_seqlens: torch.Tensor,
    start_pos: torch.Tensor,
    blocks: torch.Tensor,
    ratio: int,
    num_rows: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Per-request counts, expanded to rows with searchsorted so that sizes stay fixed."""
    first = start_pos // ratio
    counts = (start_pos + cu_seqlens[1:] - cu_seqlens[:-1]) // ratio - first
    ends = counts.cumsum(0)
    rows = torch.arange(num_rows)
    request = torch.searchsorted(ends, rows, right=True).clamp(max=len(start_pos) - 1)
    group = first[request] + rows - (ends - counts)[request]
    valid = (rows < ends[-1]) & (group // BLOCK_SIZE < blocks.shape[1]) & (group * ratio < MAX_POS)
    group = torch.where(valid, group, 0)
    block = blocks[request, group // BLOCK_SIZE]
    valid &= block >= 0
    slots = torch.where(valid, block * BLOCK_SIZE + group % BLOCK_SIZE, -1).int()
    keep = valid[:, None]
    return (
        torch.where(keep, cos[group * ratio], 1.0)[:, None, None],
        torch.where(keep, sin[group * ratio], 0.0)[:, None, None],
        slots,
    )


def _case(name: str, requests: int, tokens: int, ratio: int) -> Case:
    cos, sin = torch.randn(MAX_POS, DIM), torch.randn(MAX_POS, DIM)
    cu_seqlens = torch.arange(requests + 1, dtype=torch.int32) * tokens
    start_pos = torch.randint(0, 8192, (requests,), dtype=torch.int32)
    blocks = torch.randint(0, 4096, (requests, 32), dtype=torch.int32)
    num_rows = min(requests * tokens, requests * tokens // ratio + requests)

    def ours() -> dsv4_npu_ops.CompressorMetadata:
        return dsv4_npu_ops.compressor_metadata(
            cos, sin, cu_seqlens, start_pos, blocks, BLOCK_SIZE, 1, ratio, num_rows, requests
        )

    def plain() -> object:
        return _plain(cos, sin, cu_seqlens, start_pos, blocks, ratio, num_rows)

    got = ours()
    for name, want in zip(("cos", "sin", "slot_mapping"), plain(), strict=True):
        assert torch.equal(getattr(got, name), want), name
    shape = f"{name} B={requests} n={tokens} r={ratio}"
    return Case("compressor_metadata", shape, ours, plain, "cumsum, searchsorted, where", num_outputs=4)


def cases() -> Iterator[Case]:
    """A verify batch and a prefill batch at both ratios."""
    for ratio in (4, 128):
        yield _case("verify", 64, 4, ratio)
        yield _case("prefill", 8, 1024, ratio)

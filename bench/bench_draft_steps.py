"""All steps of a multi-step draft at once against one chain of torch calls a step."""

from collections.abc import Iterator

import torch
from harness import Case
from torch import Tensor
from torch_step import committed_lengths

from dsv4_npu_ops import DraftSteps, build_draft_steps

CONTEXT = 8192
ROPE_DIM = 64
BASELINE = "a chain of torch calls a step"


def draft_in_torch(lengths: Tensor, reserved: Tensor, cos: Tensor, sin: Tensor, topk: int, num_steps: int) -> list:
    """What an engine does between two draft passes: one gather of slots, clipped positions, lengths, RoPE rows."""
    by_step = reserved.reshape(-1, topk, num_steps).permute(2, 0, 1).reshape(num_steps, -1)
    first = lengths.repeat_interleave(topk)
    steps = []
    for j in range(num_steps):
        raw = first + j
        live = (first > 0) & (raw < CONTEXT)
        positions = torch.where(live, raw, 0)
        slots = torch.where(live, by_step[j], 0)
        steps.append((slots, positions, (positions + 1).int(), cos[positions], sin[positions]))
    return steps


def cases() -> Iterator[Case]:
    """Rounds of 64 to 4096 requests."""
    cos, sin = torch.randn(CONTEXT, ROPE_DIM), torch.randn(CONTEXT, ROPE_DIM)
    for rows, topk, num_steps in ((64, 1, 3), (64, 4, 3), (1024, 1, 3)):
        _, lengths = committed_lengths(rows, CONTEXT)
        reserved = torch.randint(128, 1 << 20, (rows * topk * num_steps,), dtype=torch.int32)
        out = DraftSteps.empty(num_steps, rows * topk, ROPE_DIM)

        def ours(
            lengths: Tensor = lengths,
            reserved: Tensor = reserved,
            topk: int = topk,
            num_steps: int = num_steps,
            out: DraftSteps = out,
        ) -> DraftSteps:
            return build_draft_steps(lengths, cos, sin, num_steps, topk=topk, reservation=reserved, out=out)

        def baseline(
            lengths: Tensor = lengths, reserved: Tensor = reserved, topk: int = topk, num_steps: int = num_steps
        ) -> list:
            return draft_in_torch(lengths, reserved, cos, sin, topk, num_steps)

        yield Case("draft_steps", f"B={rows} topk={topk} steps={num_steps}", ours, baseline, BASELINE)

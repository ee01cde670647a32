"""MTP passes over whole sequences, for training and for measuring acceptance.

Drafting feeds the MTP layer its own streams from the second guess on, so it is trained that way: pass j at position p
takes pass j - 1's output streams at p - 1 and token p + 1, and predicts token p + 2. Its attention sees what a draft's
cache holds at that moment: entries made from the target's streams up to p - j + 1, then one entry from each later pass.
"""

import torch
from torch.nn import functional as F

from dsv4_npu_ops.mtp.nextn import NextnLayer


class PassCache:
    """Stands in for a cache: keeps every pass's keys and returns them side by side, [B, 1, passes * S, head_dim]."""

    def __init__(self) -> None:
        self._passes: list[torch.Tensor] = []

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, **_: object) -> tuple:
        self._passes.append(keys)
        joined = torch.cat(self._passes, dim=2)
        return joined, joined


def pass_mask(length: int, window: int, number: int) -> torch.Tensor:
    """Additive mask [1, 1, length, number * length] of pass `number` (1 is the one fed with the target's streams)."""
    position = torch.arange(length)
    distance = position[:, None] - position[None, :]
    parts = [(distance >= number - 1) & (distance < window)]
    parts += [distance == number - later for later in range(2, number + 1)]
    visible = torch.cat(parts, dim=1)
    return torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))[None, None]


def unrolled_logits(
    nextn: NextnLayer, tokens: torch.Tensor, streams: torch.Tensor, passes: int, own_guesses: bool = False
) -> list[torch.Tensor]:
    """Logits of each pass.

    Args:
        nextn: the MTP layer.
        tokens: int64 [B, S + 1].
        streams: [B, S, hc_mult, D], the target's streams at positions 0..S-1.
        passes: how many passes.
        own_guesses: feed passes after the first with the argmax of the pass before instead of the true token.

    Returns:
        One [B, S, vocab_size] a pass; entry p of pass j predicts token p + 2 and is meaningful from p = j - 1 on.
    """
    batch, length = tokens.shape[0], tokens.shape[1] - 1
    position_ids = torch.arange(length).expand(batch, -1)
    next_tokens, cache, results = tokens[:, 1:], PassCache(), []
    for number in range(1, passes + 1):
        mask = pass_mask(length, nextn.config.sliding_window, number).expand(batch, -1, -1, -1)
        streams = nextn(next_tokens, streams, position_ids, mask, cache)
        results.append(nextn.logits(streams))
        streams = F.pad(streams, (0, 0, 0, 0, 1, 0))[:, :-1]
        if own_guesses:
            next_tokens = F.pad(results[-1].argmax(-1), (1, 0))[:, :-1]
    return results

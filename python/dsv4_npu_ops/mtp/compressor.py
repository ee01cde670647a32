"""Paged compressors: raw tokens' projections in the state pools become compressed entries in the KV pools."""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers.models.deepseek_v4.modeling_deepseek_v4 import (
    DeepseekV4CSACompressor,
    DeepseekV4HCACompressor,
    DeepseekV4Indexer,
)

from dsv4_npu_ops.mtp.pools import CompressorPools
from dsv4_npu_ops.mtp.step import Keys, Step


class PagedCompressor:
    """One compressor of a ratio-4 or ratio-128 layer, of the attention or of the indexer, over paged state.

    Args:
        module: transformers' compressor; its kv_proj, gate_proj, position_bias and kv_norm are used.
        ratio: 4 (an entry pools two groups) or 128 (one group).
        pools: its entries, written, and raw tokens' state, read and written.
        apply_rotary: the rotation op.

    Source: docs/spec.md, model and pools; groups.
    """

    def __init__(
        self,
        module: DeepseekV4CSACompressor | DeepseekV4HCACompressor | DeepseekV4Indexer,
        ratio: int,
        pools: CompressorPools,
        apply_rotary: Callable[..., object],
    ) -> None:
        self._module, self._ratio, self._apply_rotary = module, ratio, apply_rotary
        self._entries, self._state = pools.entries, pools.state

    def __call__(self, hidden: Tensor, step: Step) -> None:
        """Stores the state of the step's tokens and the entries of the groups that they complete.

        Args:
            hidden: ``[1, T, D]`` the layer's normalised input.
        """
        projected = torch.stack([self._module.kv_proj(hidden[0]), self._module.gate_proj(hidden[0])], dim=1)
        if step.group_counts[self._ratio]:
            self._compress(projected, step)
        # After the groups have read the earlier tokens' state: only the dummy row may be shared by the two.
        self._state.index_copy_(0, step.state_slots[self._ratio], projected)

    def _compress(self, projected: Tensor, step: Step) -> None:
        groups = step.groups(self._ratio)
        inputs = torch.where(
            groups.in_step[:, :, None, None], projected[groups.token_index], self._state[groups.state_slots]
        )
        kv, gate = self._series(inputs[:, :, 0]), self._series(inputs[:, :, 1])
        bias = self._module.position_bias
        gate = gate + (self._series(torch.cat([bias, bias])[None])[0] if self._ratio == 4 else bias)
        absent = groups.absent[:, :, None]
        weights = gate.masked_fill(absent, float("-inf")).softmax(dim=1, dtype=torch.float32).to(kv.dtype)
        entries = self._module.kv_norm((kv.masked_fill(absent, 0) * weights).sum(dim=1)).unsqueeze(1)
        self._apply_rotary(entries, None, *groups.rotary)
        self._entries.index_copy_(0, groups.out_slots, entries.squeeze(1))

    def _series(self, features: Tensor) -> Tensor:
        """``[G, W, F]`` to ``[G, W, head_dim]``: at ratio 4 the first half for the group before, then the second."""
        if self._ratio != 4:
            return features
        before, own = features.chunk(2, dim=-1)
        return torch.cat([before[:, :4], own[:, 4:]], dim=1)


def select_groups(scores: Tensor, visible: Tensor, top_k: int) -> Tensor:
    """The groups that each query attends to: its ``top_k`` best visible ones, the lowest group first among equals.

    Args:
        scores: ``[B, Q, C]`` the indexer's scores.
        visible: ``[B, Q, C]`` bool, groups that the query may see.
        top_k: groups kept per query.

    Returns:
        ``[B, Q, C]`` bool, a subset of ``visible``.
    """
    # A stable descending sort keeps the lower index first among equals, which topk does not promise.
    order = scores.masked_fill(~visible, float("-inf")).sort(dim=-1, descending=True, stable=True).indices
    best = torch.zeros_like(visible).scatter(-1, order[..., :top_k], True)
    return best & visible


class PagedIndexer:
    """The indexer of a ratio-4 layer: its own compressor over paged state, and the choice of groups.

    Args:
        module: transformers' indexer; projections, scorer and index_topk are used.
        pools: its keys (the compressed entries) and state, read and written.
        apply_rotary: the rotation op.
    """

    def __init__(self, module: DeepseekV4Indexer, pools: CompressorPools, apply_rotary: Callable[..., object]) -> None:
        self._module, self._keys, self._apply_rotary = module, pools.entries, apply_rotary
        self._compressor = PagedCompressor(module, 4, pools, apply_rotary)

    def __call__(self, hidden: Tensor, q_residual: Tensor, step: Step, groups: Keys) -> Tensor:
        """Stores the step's index keys and returns ``[B, Q, C]`` bool: the visible groups that the queries attend to.

        Args:
            hidden: ``[1, T, D]`` the layer's normalised input.
            q_residual: ``[1, T, q_lora_rank]`` the attention's normalised low-rank query.
            groups: the row's completed ratio-4 groups.
        """
        self._compressor(hidden, step)
        module = self._module
        if groups.slots.shape[1] <= module.index_topk:
            return groups.visible
        query = module.q_b_proj(q_residual[0]).view(hidden.shape[1], module.num_heads, module.head_dim)
        self._apply_rotary(query, None, *step.rotary["compress"])
        scores = module.scorer(step.pad(query), groups.gather(self._keys), step.pad(hidden[0]))
        return select_groups(scores, groups.visible, module.index_topk)

"""Paged DeepSeek-V4 attention and decoder layer: transformers' weights and modules, this library's pools."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4Attention, DeepseekV4DecoderLayer

from dsv4_npu_ops.mtp.compressor import PagedCompressor, PagedIndexer
from dsv4_npu_ops.mtp.pools import LayerPools
from dsv4_npu_ops.mtp.step import Step


def attend(query: Tensor, keys: Tensor, visible: Tensor, sinks: Tensor, scaling: float) -> Tensor:
    """Attention of all heads over one shared KV head, with one sink per head that takes probability and gives no value.

    Args:
        query: ``[B, Q, H, D]``.
        keys: ``[B, K, D]`` finite, also where nothing sees them; keys are the values too.
        visible: ``[B, Q, K]`` bool.
        sinks: ``[H]`` logits.
        scaling: factor of the query-key products.

    Returns:
        ``[B, Q, H, D]`` in the query's dtype.
    """
    batch, queries, heads, dim = query.shape
    logits = torch.bmm(query.reshape(batch, queries * heads, dim), keys.transpose(1, 2)) * scaling
    logits = logits.view(batch, queries, heads, -1).masked_fill(~visible.unsqueeze(2), float("-inf"))
    sink = sinks.to(logits.dtype).view(1, 1, heads, 1).expand(batch, queries, -1, -1)
    weights = torch.cat([logits, sink], dim=-1).softmax(dim=-1)[..., :-1]
    return torch.bmm(weights.reshape(batch, queries * heads, -1), keys).view_as(query)


class PagedAttention:
    """One layer's attention over the pools: sliding window, compressed groups, sinks.

    Args:
        module: transformers' attention; projections, norms, sinks and compressors are used, its cache is not.
        pools: this layer's pool tensors, read and written.
        apply_rotary: the rotation op.

    Source: docs/spec.md, model and pools; groups.
    """

    def __init__(self, module: DeepseekV4Attention, pools: LayerPools, apply_rotary: Callable[..., object]) -> None:
        self._module, self._pools, self._apply_rotary = module, pools, apply_rotary
        self._compressor: PagedCompressor | None = None
        self._indexer: PagedIndexer | None = None
        compressor: Any = module.compressor
        if pools.compressor is not None:
            self._entries = pools.compressor.entries
            self._compressor = PagedCompressor(compressor, pools.ratio, pools.compressor, apply_rotary)
        if pools.indexer is not None:
            self._indexer = PagedIndexer(compressor.indexer, pools.indexer, apply_rotary)

    def __call__(self, hidden: Tensor, step: Step) -> Tensor:
        """Normalised layer input ``[1, T, D]`` to the attention's output of the same shape; writes the pools."""
        module, tokens = self._module, hidden.shape[1]
        cos, sin = step.rotary[module.rope_layer_type]
        q_residual = module.q_a_norm(module.q_a_proj(hidden))
        query = module.q_b_norm(module.q_b_proj(q_residual).view(tokens, module.num_heads, module.head_dim))
        kv = module.kv_norm(module.kv_proj(hidden[0]))
        self._apply_rotary(query, kv, cos, sin)
        self._pools.swa.index_copy_(0, step.swa_slots, kv)
        keys, visible = self._keys(hidden, q_residual, step)
        out = attend(step.pad(query), keys, visible, module.sinks, module.scaling)
        out = step.unpad(out).contiguous()
        # Keys are the values too and carry their rotation; turning back by the query's position leaves the distance.
        self._apply_rotary(out, None, cos, sin, inverse=True)
        grouped = out.view(1, tokens, module.config.o_groups, -1)
        return module.o_b_proj(module.o_a_proj(grouped).flatten(2))

    def _keys(self, hidden: Tensor, q_residual: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """All keys ``[B, K, D]`` of every row and which of them each query sees ``[B, Q, K]``."""
        window = step.window_keys
        keys, visible = window.gather(self._pools.swa), window.visible
        if self._compressor is None:
            return keys, visible
        self._compressor(hidden, step)
        groups = step.compressed_keys(self._pools.ratio)
        chosen = groups.visible
        if self._indexer is not None:
            chosen = self._indexer(hidden, q_residual, step, groups)
        keys = torch.cat([keys, groups.gather(self._entries)], dim=1)
        return keys, torch.cat([visible, chosen], dim=2)


class PagedLayer:
    """One decoder layer whose attention is paged; hyper-connections, norms and experts are transformers' own."""

    def __init__(self, module: DeepseekV4DecoderLayer, pools: LayerPools, apply_rotary: Callable[..., object]) -> None:
        self._module = module
        self._attention = PagedAttention(module.self_attn, pools, apply_rotary)

    def __call__(self, streams: Tensor, step: Step) -> Tensor:
        """Streams ``[1, T, hc_mult, D]`` to streams of the same shape; writes the layer's pools."""
        module = self._module
        post, mix, collapsed = module.attn_hc(streams)
        streams = _merge(streams, self._attention(module.input_layernorm(collapsed), step), post, mix)
        post, mix, collapsed = module.ffn_hc(streams)
        experts = module.mlp(module.post_attention_layernorm(collapsed), input_ids=step.token_ids[None])
        return _merge(streams, experts, post, mix)


def _merge(streams: Tensor, block: Tensor, post: Tensor, mix: Tensor) -> Tensor:
    """Mixed streams plus the block's output spread over them: ``mix[.., j, k]`` takes stream j to stream k."""
    mixed = mix.to(streams.dtype).transpose(-1, -2) @ streams
    return mixed + post.to(streams.dtype).unsqueeze(-1) * block.unsqueeze(-2)

"""The target model's forward over the pools."""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import DeepseekV4ForCausalLM

from dsv4_npu_ops.mtp.attention import PagedLayer
from dsv4_npu_ops.mtp.pools import KVPools
from dsv4_npu_ops.mtp.step import Step


class PagedTarget:
    """transformers' DeepSeek-V4 with its caches replaced by the six pools.

    Args:
        model: the target; every weight and every module that does not touch a cache is used as it is.
        pools: pool tensors, read and written.
        apply_rotary: the rotation op.
    """

    def __init__(self, model: DeepseekV4ForCausalLM, pools: KVPools, apply_rotary: Callable[..., object]) -> None:
        self._model = model.model
        self._lm_head = model.lm_head
        self._streams = model.config.hc_mult
        self._layers = [
            PagedLayer(layer, layer_pools, apply_rotary)
            for layer, layer_pools in zip(model.model.layers, pools.layers, strict=True)
        ]

    @torch.no_grad()
    def __call__(self, step: Step) -> Tensor:
        """Pre-head streams ``[1, T, hc_mult, D]`` of the step's tokens; writes every layer's pools."""
        embedded = self._model.embed_tokens(step.token_ids)[None]
        streams = embedded.unsqueeze(2).expand(-1, -1, self._streams, -1).contiguous()
        for layer in self._layers:
            streams = layer(streams, step)
        return streams

    @torch.no_grad()
    def logits(self, streams: Tensor) -> Tensor:
        """Pre-head streams ``[1, N, hc_mult, D]`` to logits ``[N, vocab_size]`` of the tokens that follow."""
        return self._lm_head(self._model.norm(self._model.hc_head(streams)))[0]

"""DeepSeek-V4's MTP (NEXTN) layer in plain torch, built from transformers' DeepSeek-V4 modules.

transformers leaves the MTP layer of a DeepSeek-V4 checkpoint out. This module supplies it: embedding norm and hidden
norm, one projection each, one ratio-0 decoder layer with routed experts, and the layer's own head mixing and norm.
Embedding table and lm_head stay the target's. Position i combines the target's streams at i with token i + 1 and
predicts token i + 2 (docs/spec.md, lengths).
"""

import copy
import inspect
from typing import Any

import torch
from torch import nn
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM
from transformers.models.deepseek_v4.modeling_deepseek_v4 import (
    DeepseekV4DecoderLayer,
    DeepseekV4HyperHead,
    DeepseekV4RMSNorm,
    DeepseekV4RotaryEmbedding,
)


def nextn_config(config: DeepseekV4Config) -> DeepseekV4Config:
    """The target's config narrowed to the MTP layer: one sliding-window layer with routed experts."""
    narrowed = copy.deepcopy(config)
    narrowed.num_hidden_layers = 1
    narrowed.layer_types = ["sliding_attention"]
    narrowed.mlp_layer_types = ["moe"]
    return narrowed


class NextnLayer(nn.Module):
    """One MTP layer; `combine`, `decode` and `head` are its three parts, `forward` is the first two.

    Args:
        config: the target model's config; hidden size D and hc_mult are read from it.
        embed_tokens: the target's embedding table, used and not owned (absent from `state_dict`).
        lm_head: the target's output projection, used and not owned.

    The attention of `decoder` is transformers' own and may be replaced by one with another cache; it is called with
    hidden_states [B, S, D], position_embeddings, position_ids, attention_mask and cache, and returns ([B, S, D], any).
    """

    def __init__(self, config: DeepseekV4Config, embed_tokens: nn.Embedding, lm_head: nn.Linear) -> None:
        super().__init__()
        self.config = nextn_config(config)
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.enorm = DeepseekV4RMSNorm(hidden, eps=eps)
        self.hnorm = DeepseekV4RMSNorm(hidden, eps=eps)
        self.e_proj = nn.Linear(hidden, hidden, bias=False)
        self.h_proj = nn.Linear(hidden, hidden, bias=False)
        self.decoder = DeepseekV4DecoderLayer(self.config, layer_idx=0)
        self.hc_head = DeepseekV4HyperHead(self.config)
        self.shared_head = nn.ModuleDict({"norm": DeepseekV4RMSNorm(hidden, eps=eps)})
        self.rotary_emb = DeepseekV4RotaryEmbedding(self.config)
        # A tuple keeps the target's modules out of this module's parameters and state_dict.
        self._shared = (embed_tokens, lm_head)

    @property
    def embed_tokens(self) -> nn.Embedding:
        """The target's embedding table."""
        return self._shared[0]

    @property
    def lm_head(self) -> nn.Linear:
        """The target's output projection."""
        return self._shared[1]

    def combine(self, next_tokens: torch.Tensor, streams: torch.Tensor) -> torch.Tensor:
        """Input streams of the decoder layer.

        Args:
            next_tokens: int64 [B, S], at position i the token i + 1.
            streams: [B, S, hc_mult, D], at position i the target's pre-head streams at i, or, for a draft pass
                after the first, this layer's own output streams of the pass before.

        Returns:
            [B, S, hc_mult, D]: the embedding's projection added to every stream's projection.
        """
        embedded = self.e_proj(self.enorm(self.embed_tokens(next_tokens)))
        return embedded.unsqueeze(2) + self.h_proj(self.hnorm(streams))

    def decode(
        self,
        streams: torch.Tensor,
        position_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        cache: Any = None,
    ) -> torch.Tensor:
        """The decoder layer: streams [B, S, hc_mult, D] at int64 position_ids [B, S] to streams of the same shape."""
        rope = {"main": self.rotary_emb(streams, position_ids=position_ids, layer_type="main")}
        return self.decoder(
            streams,
            position_embeddings=rope,
            position_ids=position_ids,
            attention_mask=attention_mask,
            **{self._cache_keyword(): cache},
        )

    def _cache_keyword(self) -> str:
        """What the attention calls its cache: transformers 5.24 renamed it, and none objects to an unknown name."""
        names = inspect.signature(self.decoder.self_attn.forward).parameters
        return "cache" if "cache" in names else "past_key_values"

    def head(self, streams: torch.Tensor) -> torch.Tensor:
        """Streams [B, S, hc_mult, D] to the input of lm_head [B, S, D]: this layer's own head mixing and norm."""
        return self.shared_head["norm"](self.hc_head(streams))

    def logits(self, streams: torch.Tensor) -> torch.Tensor:
        """Output streams [B, S, hc_mult, D] to logits [B, S, vocab_size] of the token two positions on."""
        return self.lm_head(self.head(streams))

    def forward(
        self,
        next_tokens: torch.Tensor,
        streams: torch.Tensor,
        position_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        cache: Any = None,
    ) -> torch.Tensor:
        """Pre-head output streams [B, S, hc_mult, D]; feed them to `logits`, and to the next draft pass."""
        return self.decode(self.combine(next_tokens, streams), position_ids, attention_mask, cache)


def target_streams(target: DeepseekV4ForCausalLM, input_ids: torch.Tensor, **kwargs: Any) -> tuple[torch.Tensor, Any]:
    """Runs the target's decoder and also returns the streams its head mixing consumes.

    Args:
        target: the target model.
        input_ids: int64 [B, S].
        **kwargs: passed on to `target.model` (cache, position_ids, attention_mask, ...).

    Returns:
        (streams [B, S, hc_mult, D] before `target.model.hc_head`, the output of `target.model`).
    """
    captured: list[torch.Tensor] = []
    handle = target.model.hc_head.register_forward_pre_hook(lambda _module, args: captured.append(args[0]))
    try:
        output = target.model(input_ids, **kwargs)
    finally:
        handle.remove()
    return captured[0], output


def causal_window_mask(length: int, window: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Additive mask [1, 1, length, length]: position p sees [p - window + 1, p], everything else is -inf."""
    position = torch.arange(length)
    distance = position[:, None] - position[None, :]
    visible = (distance >= 0) & (distance < window)
    mask = torch.zeros(length, length, dtype=dtype).masked_fill(~visible, float("-inf"))
    return mask[None, None]

"""The small model: its config, its initial weights, and stand-ins for two modules that make training faster."""

from pathlib import Path

import torch
from corpus import BOS, EOS, PAD, VOCAB_SIZE
from torch import nn
from torch.nn import functional as F
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as modeling

from dsv4_npu_ops.mtp.checkpoint import load_checkpoint
from dsv4_npu_ops.mtp.nextn import NextnLayer

TRAINING_ATTENTION = "fused_with_sink"


def tiny_config(**overrides: object) -> DeepseekV4Config:
    """All three kinds of attention layer, hash and routed experts, and YaRN that acts within a short context."""
    settings = dict(
        vocab_size=VOCAB_SIZE,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        head_dim=32,
        q_lora_rank=64,
        partial_rotary_factor=0.5,
        o_groups=2,
        o_lora_rank=64,
        layer_types=[
            "sliding_attention",
            "compressed_sparse_attention",
            "heavily_compressed_attention",
            "compressed_sparse_attention",
        ],
        mlp_layer_types=["hash_moe", "moe", "moe", "moe"],
        moe_intermediate_size=96,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_shared_experts=1,
        routed_scaling_factor=1.5,
        hc_mult=4,
        hc_sinkhorn_iters=4,
        sliding_window=128,
        index_n_heads=2,
        index_head_dim=32,
        index_topk=1024,
        max_position_embeddings=4096,
        rope_theta=10000.0,
        compress_rope_theta=160000.0,
        rope_parameters={
            "rope_type": "yarn",
            "factor": 16.0,
            "original_max_position_embeddings": 256,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
        },
        initializer_range=0.04,
        num_nextn_predict_layers=1,
    )
    config = DeepseekV4Config(**{**settings, **overrides})
    config._attn_implementation = "eager"
    return config


def hash_table(config: DeepseekV4Config) -> torch.Tensor:
    """Experts of every token in the hash layer, int64 [vocab_size, num_experts_per_tok]: distinct, spread evenly."""
    token = torch.arange(config.vocab_size)
    first = (token * 2654435761 >> 7) % config.n_routed_experts
    step = 1 + (token * 40503 >> 5) % (config.n_routed_experts - 1)
    return torch.stack([(first + k * step) % config.n_routed_experts for k in range(2)], dim=1)


def attention_with_sink(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    sliding_window: int,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """transformers' eager attention with the window's zeros left out: one fused call for each block of queries.

    The sink is one more key: a constant 1 appended to every query meets the sink's logit there and 0 elsewhere.
    """
    batch, heads, length, dim = query.shape
    passes = key.shape[2] // length
    query = torch.cat([query, query.new_ones(batch, heads, length, 1)], dim=-1)
    sink = F.pad((module.sinks / scaling).view(1, heads, 1, 1).expand(batch, -1, -1, -1), (dim, 0))
    shared = F.pad(key, (0, 1))
    blocks = []
    for start in range(0, length, sliding_window):
        stop = min(start + sliding_window, length)
        first = max(0, start - sliding_window)
        spans = [slice(n * length + first, n * length + stop) for n in range(passes)]
        spans.append(slice(passes * length, key.shape[2]))
        keys = torch.cat([shared[:, :, span] for span in spans], dim=2)
        values = F.pad(keys, (0, 0, 0, 1)).expand(-1, heads, -1, -1)
        keys = torch.cat([keys.expand(-1, heads, -1, -1), sink], dim=2)
        mask = F.pad(torch.cat([attention_mask[:, :, start:stop, span] for span in spans], dim=3), (0, 1))
        blocks.append(
            F.scaled_dot_product_attention(query[:, :, start:stop], keys, values, attn_mask=mask, scale=scaling)
        )
    return torch.cat(blocks, dim=2)[..., :dim].transpose(1, 2), None


modeling.ALL_ATTENTION_FUNCTIONS.register(TRAINING_ATTENTION, attention_with_sink)


def select_every_group(self: nn.Module, hidden: torch.Tensor, _q: object, position_ids: torch.Tensor, *_: object):
    """What the indexer selects while index_topk covers all groups: each completed one; the rest is -1."""
    groups = torch.arange(hidden.shape[1] // self.compress_rate).expand(*position_ids.shape, -1)
    return groups.masked_fill(groups >= ((position_ids + 1) // self.compress_rate).unsqueeze(-1), -1)


class ExpertBalance:
    """Keeps routed experts evenly loaded through the routers' selection bias, without an extra loss."""

    def __init__(self, models: list[nn.Module], rate: float = 0.002) -> None:
        self._rate = rate
        self._loads: dict[nn.Module, torch.Tensor] = {}
        for model in models:
            for module in model.modules():
                if isinstance(module, modeling.DeepseekV4TopKRouter):
                    self._loads[module] = torch.zeros(module.num_experts)
                    module.register_forward_hook(self._count)

    def _count(self, module: nn.Module, _inputs: object, output: tuple) -> None:
        if module.training:
            self._loads[module] += torch.bincount(output[2].flatten(), minlength=module.num_experts)

    def step(self) -> None:
        """Raises the bias of experts that got less than their share since the last call, lowers the others'."""
        for module, load in self._loads.items():
            module.e_score_correction_bias += self._rate * torch.sign(load.mean() - load)
            load.zero_()


def build(checkpoint: Path | None = None) -> tuple[DeepseekV4ForCausalLM, NextnLayer]:
    """Target and MTP layer in float32, ready to train: freshly initialised, or with a checkpoint's weights."""
    if checkpoint is None:
        models = _initialised(tiny_config())
    else:
        models = load_checkpoint(checkpoint)
    for model in models:
        model.requires_grad_(True)
        for module in model.modules():
            if isinstance(module, modeling.DeepseekV4Indexer):
                module.forward = select_every_group.__get__(module)
                module.requires_grad_(False)
        model.config._attn_implementation = TRAINING_ATTENTION
        model.config._experts_implementation = "grouped_mm"
    return models


def _initialised(config: DeepseekV4Config) -> tuple[DeepseekV4ForCausalLM, NextnLayer]:
    target = DeepseekV4ForCausalLM(config)
    nextn = NextnLayer(config, target.model.embed_tokens, target.lm_head)
    nextn.apply(target._init_weights)
    for model in (target, nextn):
        for module in model.modules():
            if isinstance(module, modeling.DeepseekV4HyperConnection):
                streams = module.hc_mult
                with torch.no_grad():
                    # Streams that start equal and are mixed evenly stay equal: start from distinct, mostly separate.
                    nn.init.normal_(module.base, std=0.5)
                    module.base[2 * streams :] += 3 * torch.eye(streams).flatten()
            elif isinstance(module, modeling.DeepseekV4HashRouter):
                module.tid2eid.copy_(hash_table(config))
    return target, nextn

"""Small random DeepSeek-V4 models whose greedy continuations are not degenerate, and what transformers generates."""

import torch
from torch import nn
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as modeling

from dsv4_npu_ops import KVLayout
from dsv4_npu_ops.mtp.nextn import NextnLayer

VOCAB_SIZE = 97
SLIDING, CSA, HCA = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"


def small_config(**overrides: object) -> DeepseekV4Config:
    """A config with every kind of layer; YaRN acts within the tests' lengths."""
    settings = dict(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        head_dim=16,
        q_lora_rank=16,
        partial_rotary_factor=0.5,
        o_groups=2,
        o_lora_rank=16,
        layer_types=[CSA, SLIDING, HCA],
        mlp_layer_types=["hash_moe", "moe", "moe"],
        moe_intermediate_size=32,
        n_routed_experts=4,
        num_experts_per_tok=2,
        hc_mult=2,
        hc_sinkhorn_iters=3,
        sliding_window=128,
        index_n_heads=2,
        index_head_dim=16,
        index_topk=512,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64,
                         "beta_fast": 32.0, "beta_slow": 1.0},
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    config = DeepseekV4Config(**{**settings, **overrides})
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return config


@torch.no_grad()
def randomise(module: nn.Module, generator: torch.Generator) -> None:
    """Every weight random, large enough that attention, gates and routing depend on the input."""
    for name, parameter in module.named_parameters():
        leaf = name.rsplit(".", 1)[-1]
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
        if "norm" in name and parameter.dim() == 1:
            parameter.copy_(1 + 0.2 * noise)
        elif leaf in ("scale", "hc_scale"):
            parameter.copy_(1 + 0.1 * noise)
        elif leaf in ("sinks", "position_bias", "base", "hc_base"):
            parameter.copy_(0.5 * noise)
        else:
            parameter.copy_(noise * (1.3 / parameter.shape[-1] ** 0.5))
    for layer in module.modules():
        if isinstance(layer, modeling.DeepseekV4TopKRouter):
            layer.e_score_correction_bias.copy_(0.1 * torch.randn(layer.num_experts, generator=generator))
        elif isinstance(layer, modeling.DeepseekV4HashRouter):
            experts = torch.rand(layer.tid2eid.shape[0], layer.num_experts, generator=generator).argsort(dim=1)
            layer.tid2eid.copy_(experts[:, : layer.top_k])


def build(
    seed: int, dtype: torch.dtype = torch.float32, **overrides: object
) -> tuple[DeepseekV4ForCausalLM, NextnLayer]:
    """A random target and MTP layer in eval mode."""
    config = small_config(**overrides)
    generator = torch.Generator().manual_seed(seed)
    target = DeepseekV4ForCausalLM(config)
    nextn = NextnLayer(config, target.model.embed_tokens, target.lm_head)
    for model in (target, nextn):
        randomise(model, generator)
        model.to(dtype).eval().requires_grad_(False)
    return target, nextn


def layout_of(page_size: int, max_requests: int = 4, max_context_len: int = 640) -> KVLayout:
    """Pools that hold every request of these tests at once."""
    pages = {
        pool: max_requests * (max_context_len // unit // page_size + 2)
        for pool, unit in (("full", 1), ("swa", 1), ("c4", 4), ("c128", 128), ("c4_state", 1), ("c128_state", 1))
    }
    return KVLayout(page_size, 128, max_requests, max_context_len, pages)


def prompts_of(lengths: list[int], seed: int) -> list[list[int]]:
    """One random prompt of each length."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCAB_SIZE, (length,), generator=generator).tolist() for length in lengths]


def transformers_greedy(
    target: DeepseekV4ForCausalLM, prompt: list[int], new_tokens: int
) -> tuple[list[int], torch.Tensor]:
    """transformers' own greedy continuation of one prompt, with its own cache.

    Returns:
        tokens, and the logits ``[new_tokens, vocab]`` that they are the argmax of.
    """
    output = target.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=new_tokens,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return output.sequences[0, len(prompt) :].tolist(), torch.cat(output.logits)

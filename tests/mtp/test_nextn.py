"""The MTP layer in plain torch, its checkpoint files, and the reference that judges drafts."""

from types import SimpleNamespace

import pytest
import torch
from reference import mtp as reference
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM, DynamicCache

from dsv4_npu_ops.mtp.checkpoint import load_checkpoint, save_checkpoint
from dsv4_npu_ops.mtp.nextn import NextnLayer, causal_window_mask, target_streams

WINDOW = 16


def _random_models() -> SimpleNamespace:
    torch.manual_seed(3)
    config = DeepseekV4Config(
        vocab_size=70,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        head_dim=16,
        q_lora_rank=16,
        partial_rotary_factor=0.5,
        o_groups=2,
        o_lora_rank=8,
        layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
        mlp_layer_types=["hash_moe", "moe", "moe"],
        moe_intermediate_size=24,
        n_routed_experts=4,
        num_experts_per_tok=2,
        hc_mult=4,
        hc_sinkhorn_iters=3,
        sliding_window=WINDOW,
        index_n_heads=2,
        index_head_dim=16,
        index_topk=64,
        max_position_embeddings=256,
        initializer_range=0.3,
    )
    config._attn_implementation = "eager"
    target = DeepseekV4ForCausalLM(config).eval()
    nextn = NextnLayer(config, target.model.embed_tokens, target.lm_head).eval()
    nextn.apply(target._init_weights)
    for model in (target, nextn):
        model.requires_grad_(False)
        for name, parameter in model.named_parameters():
            # Values at which a forgotten norm weight, sink or head bias would show.
            if "norm" in name:
                parameter.normal_(1, 0.3)
            elif parameter.dim() == 1:
                parameter.normal_(0, 1)
    return SimpleNamespace(target=target, nextn=nextn)


@pytest.fixture(scope="module")
def models() -> SimpleNamespace:
    return _random_models()


@pytest.fixture(scope="module")
def tokens() -> list[int]:
    return torch.randint(70, (60,), generator=torch.Generator().manual_seed(4)).tolist()


def _cached_drafts(models: SimpleNamespace, tokens: list[int], count: int) -> torch.Tensor:
    """Logits of `count` guesses through transformers' own attention and cache, one pass after another."""
    nextn, committed = models.nextn, len(tokens) - 1
    streams, _ = target_streams(models.target, torch.tensor([tokens[:committed]]), use_cache=False)
    cache = DynamicCache(config=nextn.config)
    mask = causal_window_mask(committed, WINDOW)
    streams = nextn(torch.tensor([tokens[1:]]), streams, torch.arange(committed)[None], mask, cache)[:, -1:]
    rows = [nextn.logits(streams)[0, 0]]
    for position in range(committed, committed + count - 1):
        streams = nextn(rows[-1].argmax().view(1, 1), streams, torch.tensor([[position]]), None, cache)
        rows.append(nextn.logits(streams)[0, 0])
    return torch.stack(rows)


def test_parts_keep_the_stream_shape(models):
    hidden, hc = models.target.config.hidden_size, models.target.config.hc_mult
    streams = torch.randn(2, 5, hc, hidden)
    next_tokens = torch.randint(70, (2, 5))
    combined = models.nextn.combine(next_tokens, streams)
    assert combined.shape == (2, 5, hc, hidden)
    decoded = models.nextn.decode(combined, torch.arange(5).expand(2, -1), causal_window_mask(5, WINDOW))
    assert decoded.shape == (2, 5, hc, hidden)
    assert models.nextn.head(decoded).shape == (2, 5, hidden)
    assert models.nextn.logits(decoded).shape == (2, 5, 70)


def test_embedding_and_lm_head_are_the_targets(models):
    assert models.nextn.embed_tokens is models.target.model.embed_tokens
    assert models.nextn.lm_head is models.target.lm_head
    assert not [name for name in models.nextn.state_dict() if "embed" in name or "lm_head" in name]


def test_target_streams_are_what_the_head_consumes(models, tokens):
    input_ids = torch.tensor([tokens])
    streams, output = target_streams(models.target, input_ids, use_cache=False)
    model = models.target.model
    torch.testing.assert_close(model.norm(model.hc_head(streams)), output.last_hidden_state, rtol=0, atol=0)
    assert not model.hc_head._forward_pre_hooks


def _attention_with_cache(hidden_states, cache=None, **_):
    return hidden_states * cache, None


def _attention_with_past_key_values(hidden_states, past_key_values=None, **_):
    return hidden_states * past_key_values, None


@pytest.mark.parametrize("attention", [_attention_with_cache, _attention_with_past_key_values])
def test_the_cache_arrives_under_the_name_that_this_transformers_has(models, monkeypatch, attention):
    monkeypatch.setattr(models.nextn.decoder.self_attn, "forward", attention)
    streams, position = torch.ones(1, 1, 4, 32), torch.zeros(1, 1, dtype=torch.int64)
    once, twice = (models.nextn.decode(streams, position, cache=cache) for cache in (1, 2))
    assert not torch.equal(once, twice)


@pytest.mark.parametrize("committed", [1, 2, WINDOW - 1, WINDOW, WINDOW + 1, 40])
def test_reference_drafts_what_a_cached_run_drafts(models, tokens, committed):
    known = tokens[: committed + 1]
    streams = reference.target_streams(models.target, tokens)
    expected = _cached_drafts(models, known, 5)
    torch.testing.assert_close(reference.draft_logits(models.nextn, known, streams, 5), expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_accepted_lengths_cover_the_run(models, tokens, width):
    lengths = reference.accepted_lengths(models.target, models.nextn, tokens, 30, width)
    assert sum(lengths) == len(tokens) - 1 - 30
    assert all(1 <= length <= width for length in lengths)


def test_saved_files_load_again(models, tokens, tmp_path):
    save_checkpoint(tmp_path, models.target, models.nextn)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors", "mtp.safetensors"]
    target, nextn = load_checkpoint(tmp_path)
    for loaded, original in ((target, models.target), (nextn, models.nextn)):
        state = loaded.state_dict()
        for name, weight in original.state_dict().items():
            stored = weight.to(torch.bfloat16).to(weight.dtype) if weight.is_floating_point() else weight
            torch.testing.assert_close(state[name], stored if weight.dim() > 1 else weight, rtol=0, atol=0)
    assert nextn.lm_head is target.lm_head and nextn.embed_tokens is target.model.embed_tokens


def test_loading_widens_every_weight_to_float64(models, tmp_path):
    save_checkpoint(tmp_path, models.target, models.nextn)
    for model in load_checkpoint(tmp_path, torch.float64):
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}


def test_loading_names_the_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        load_checkpoint(tmp_path)

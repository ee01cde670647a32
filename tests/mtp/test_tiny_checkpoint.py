"""The committed checkpoint: what it covers, that it loads, and that its MTP layer predicts its target."""

import importlib.util
from pathlib import Path

import pytest
import torch
from reference import mtp as reference
from safetensors import safe_open
from transformers import DeepseekV4ForCausalLM

from dsv4_npu_ops.mtp.checkpoint import load_checkpoint
from dsv4_npu_ops.mtp.nextn import causal_window_mask, target_streams

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "tiny_checkpoint"
FILES = ("config.json", "model.safetensors", "mtp.safetensors")


@pytest.fixture(scope="module")
def checkpoint():
    return load_checkpoint(FOLDER)


@pytest.fixture(scope="module")
def held_out_text() -> torch.Tensor:
    """int64 [1, 602]: bytes the training script kept out."""
    spec = importlib.util.spec_from_file_location("tiny_checkpoint_corpus", FOLDER / "corpus.py")
    corpus = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(corpus)
    return corpus.token_stream(held_out=True)[None, 1000:1602]


def test_it_is_small():
    assert sum((FOLDER / name).stat().st_size for name in FILES) < 5_000_000


def test_it_covers_every_kind_of_layer(checkpoint):
    config = checkpoint[0].config
    kinds = {"sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"}
    assert set(config.layer_types) == kinds
    assert set(config.mlp_layer_types) == {"hash_moe", "moe"}
    assert config.index_topk >= config.max_position_embeddings // 4
    assert config.rope_parameters["compress"]["rope_type"] == "yarn"


def test_hash_layer_spreads_tokens_over_experts(checkpoint):
    target = checkpoint[0]
    table = target.model.layers[target.config.mlp_layer_types.index("hash_moe")].mlp.gate.tid2eid
    assert (table[:, 0] != table[:, 1]).all()
    counts = torch.bincount(table.flatten(), minlength=target.config.n_routed_experts)
    assert counts.min() > 0.5 * counts.float().mean()


def test_transformers_alone_loads_the_target(checkpoint):
    alone, report = DeepseekV4ForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    for name, weight in checkpoint[0].state_dict().items():
        torch.testing.assert_close(alone.state_dict()[name], weight, rtol=0, atol=0)


def test_mtp_names_are_those_that_transformers_ignores():
    with safe_open(FOLDER / "mtp.safetensors", "pt") as file:
        assert all(name.startswith("mtp.0.") for name in file.keys())


def test_greedy_generation_repeats(checkpoint, held_out_text):
    prompt = held_out_text[:, :140]
    first, second = (checkpoint[0].generate(prompt, max_new_tokens=8, do_sample=False) for _ in range(2))
    assert torch.equal(first, second)


def test_target_predicts_held_out_text(checkpoint, held_out_text):
    logits = checkpoint[0](held_out_text[:, :-1], use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[0], held_out_text[0, 1:])
    # A byte of Python costs 4.6 bits without any context; 3 bits are 2.08 nats.
    assert loss.item() < 2.08


def test_first_guess_agrees_with_the_target(checkpoint, held_out_text):
    target, nextn = checkpoint
    tokens = held_out_text[:, :-1]
    length = tokens.shape[1] - 1
    streams, output = target_streams(target, tokens, use_cache=False)
    chosen = target.lm_head(output.last_hidden_state)[0, 1:].argmax(-1)
    mask = causal_window_mask(length, target.config.sliding_window)
    out = nextn(tokens[:, 1:], streams[:, :-1], torch.arange(length)[None], mask)
    agreement = (nextn.logits(out)[0].argmax(-1) == chosen).float().mean().item()
    always_the_commonest = torch.bincount(chosen).max().item() / length
    assert agreement > 0.6
    assert agreement > 2 * always_the_commonest


def test_drafts_are_accepted_beyond_the_first(checkpoint, held_out_text):
    target, nextn = checkpoint
    tokens = target.generate(held_out_text[:, :140], max_new_tokens=24, do_sample=False)[0].tolist()
    lengths = reference.accepted_lengths(target, nextn, tokens, 140, 4)
    assert sum(lengths) == len(tokens) - 1 - 140
    assert sum(lengths) / len(lengths) > 1.5
    assert max(lengths) > 2

"""Reference for MTP drafting: no cache, everything recomputed from the tokens (docs/spec.md, lengths).

Weights come from the model objects, as do the modules that never touch a cache (mHC, experts, norms); attention, RoPE
and the order of drafting are written out here. The models must be unmodified ones: a paged attention put into them is
what this reference judges.
"""

import torch
from torch.nn import functional as F


@torch.no_grad()
def target_streams(target, tokens: list[int]) -> torch.Tensor:
    """The target's streams before its head mixing at every position of `tokens`: [len(tokens), hc_mult, D]."""
    captured = []
    handle = target.model.hc_head.register_forward_pre_hook(lambda _module, args: captured.append(args[0][0]))
    try:
        target.model(torch.tensor([tokens]), use_cache=False)
    finally:
        handle.remove()
    return captured[0]


@torch.no_grad()
def draft_logits(nextn, tokens: list[int], streams: torch.Tensor, count: int) -> torch.Tensor:
    """Logits of `count` guesses that follow `tokens`.

    Args:
        nextn: the MTP layer.
        tokens: the L committed tokens and the sampled one that is not cached yet, L + 1 in all, L >= 1.
        streams: [L or more, hc_mult, D], the target's streams at positions 0..L-1.
        count: guesses wanted, k >= 1.

    Returns:
        [k, vocab_size]; row j - 1 is about the token at position L + j, given the greedy guesses before it.
    """
    committed = len(tokens) - 1
    inputs = _combine(nextn, torch.tensor(tokens[1:]), streams[:committed])
    rows = []
    for _ in range(count):
        outputs = _decoder(nextn, inputs)
        last = outputs[-1:]
        rows.append(nextn.lm_head(nextn.shared_head["norm"](nextn.hc_head(last[None])))[0, 0])
        inputs = torch.cat([inputs, _combine(nextn, rows[-1].argmax().reshape(1), last)])
    return torch.stack(rows)


def draft_tokens(nextn, tokens: list[int], streams: torch.Tensor, count: int) -> list[int]:
    """The `count` greedy guesses of `draft_logits`: the tokens guessed for positions L + 1 .. L + count."""
    return draft_logits(nextn, tokens, streams, count).argmax(-1).tolist()


def accepted_lengths(target, nextn, tokens: list[int], prompt_len: int, num_draft_tokens: int) -> list[int]:
    """Accepted length of every verify step of a greedy run.

    Args:
        target, nextn: the models.
        tokens: prompt and the target's own greedy continuation.
        prompt_len: prompt tokens; the first step has them committed and the token after them sampled.
        num_draft_tokens: inputs of a verify, n >= 1: the sampled token and n - 1 guesses. Clipped near the end.

    Returns:
        One length 1..n a step; they add up to len(tokens) - 1 - prompt_len.
    """
    streams = target_streams(target, tokens)
    committed, lengths = prompt_len, []
    while committed < len(tokens) - 1:
        guesses = min(num_draft_tokens - 1, len(tokens) - 2 - committed)
        known = tokens[: committed + 1]
        drafted = draft_tokens(nextn, known, streams, guesses) if guesses else []
        matches = 0
        while matches < guesses and drafted[matches] == tokens[committed + 1 + matches]:
            matches += 1
        lengths.append(1 + matches)
        committed += 1 + matches
    return lengths


def _combine(nextn, next_tokens: torch.Tensor, streams: torch.Tensor) -> torch.Tensor:
    """next_tokens int64 [S], streams [S, hc_mult, D] -> the decoder layer's input [S, hc_mult, D]."""
    embedded = _rms_norm(nextn.embed_tokens.weight[next_tokens], nextn.enorm)
    normed = _rms_norm(streams, nextn.hnorm)
    return (embedded @ nextn.e_proj.weight.T)[:, None] + normed @ nextn.h_proj.weight.T


def _decoder(nextn, streams: torch.Tensor) -> torch.Tensor:
    """The decoder layer at positions 0..S-1: streams [S, hc_mult, D] to [S, hc_mult, D]."""
    layer = nextn.decoder
    post, mix, collapsed = layer.attn_hc(streams[None])
    attended = _attention(layer.self_attn, _rms_norm(collapsed[0], layer.input_layernorm))
    streams = _merge(streams, attended, post[0], mix[0])
    post, mix, collapsed = layer.ffn_hc(streams[None])
    routed = layer.mlp(_rms_norm(collapsed, layer.post_attention_layernorm))[0]
    return _merge(streams, routed, post[0], mix[0])


def _merge(streams: torch.Tensor, block: torch.Tensor, post: torch.Tensor, mix: torch.Tensor) -> torch.Tensor:
    """New stream k: post[k] times the block's output plus the sum over j of mix[j, k] times stream j."""
    mixed = torch.einsum("sjk,sjd->skd", mix.to(streams.dtype), streams)
    return mixed + post.to(streams.dtype)[:, :, None] * block[:, None]


def _attention(attention, hidden: torch.Tensor) -> torch.Tensor:
    """Sliding-window attention with one shared key-value head and a sink a head: hidden [S, D] to [S, D]."""
    config, length = attention.config, hidden.shape[0]
    heads, dim = config.num_attention_heads, config.head_dim
    cos, sin = _rope(config, length)
    low_rank = _rms_norm(hidden @ attention.q_a_proj.weight.T, attention.q_a_norm)
    query = (low_rank @ attention.q_b_proj.weight.T).view(length, heads, dim)
    query = query * torch.rsqrt(query.float().square().mean(-1, keepdim=True) + config.rms_norm_eps).to(query.dtype)
    query = _rotate(query, cos[:, None], sin[:, None])
    key = _rotate(_rms_norm(hidden @ attention.kv_proj.weight.T, attention.kv_norm), cos, sin)

    distance = torch.arange(length)[:, None] - torch.arange(length)[None]
    hidden_from = (distance < 0) | (distance >= config.sliding_window)
    scores = torch.einsum("shd,td->hst", query, key) * dim**-0.5
    scores = scores.masked_fill(hidden_from, float("-inf"))
    sinks = attention.sinks.to(scores.dtype)[:, None, None].expand(-1, length, 1)
    weights = torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]
    out = torch.einsum("hst,td->shd", weights, key)
    out = _rotate(out, cos[:, None], -sin[:, None])

    grouped = out.reshape(length, config.o_groups, -1)
    blocks = attention.o_a_proj.weight.view(config.o_groups, config.o_lora_rank, -1)
    return torch.einsum("sgi,gri->sgr", grouped, blocks).flatten(1) @ attention.o_b_proj.weight.T


def _rope(config, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [length, rope_dim / 2] at the base of ratio 0, which knows no scaling."""
    rope_dim = config.qk_rope_head_dim
    frequency = config.rope_theta ** -(torch.arange(0, rope_dim, 2, dtype=torch.float32) / rope_dim)
    angle = torch.arange(length, dtype=torch.float32)[:, None] * frequency
    return angle.cos(), angle.sin()


def _rotate(values: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotates the last features of values [..., dim] pairwise: (a, b) to (a cos - b sin, b cos + a sin)."""
    rope_dim = 2 * cos.shape[-1]
    kept, rotated = values[..., :-rope_dim], values[..., -rope_dim:].float()
    even, odd = rotated[..., 0::2], rotated[..., 1::2]
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)
    return torch.cat([kept, turned.to(values.dtype)], dim=-1)


def _rms_norm(values: torch.Tensor, norm) -> torch.Tensor:
    normed = F.rms_norm(values.float(), values.shape[-1:], eps=norm.variance_epsilon)
    return (norm.weight.float() * normed).to(values.dtype)

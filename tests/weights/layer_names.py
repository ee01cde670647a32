"""Every weight name of the MTP layer in the published DeepSeek-V4 checkpoints, written out by hand.

``matrices`` may be quantised and then have a scale; ``others`` never are.
"""

EXPERTS = 4

MATRICES = [
    "e_proj",
    "h_proj",
    "attn.wq_a",
    "attn.wq_b",
    "attn.wkv",
    "attn.wo_a",
    "attn.wo_b",
    *(f"ffn.shared_experts.{w}" for w in ("w1", "w2", "w3")),
    *(f"ffn.experts.{e}.{w}" for e in range(EXPERTS) for w in ("w1", "w2", "w3")),
]
OTHERS = [
    "enorm.weight",
    "hnorm.weight",
    "norm.weight",
    "hc_head_fn",
    "hc_head_base",
    "hc_head_scale",
    "attn_norm.weight",
    "ffn_norm.weight",
    "attn.attn_sink",
    "attn.q_norm.weight",
    "attn.kv_norm.weight",
    "ffn.gate.weight",
    "ffn.gate.bias",
    "hc_attn_fn",
    "hc_attn_base",
    "hc_attn_scale",
    "hc_ffn_fn",
    "hc_ffn_base",
    "hc_ffn_scale",
]

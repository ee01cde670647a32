"""Cost cases of the RoPE ops."""

import torch
from moved import ROPE_DIM, CostCase, Moved, nbytes, num_elements

import dsv4_npu_ops


def rope_gather(tokens: int, order: str) -> CostCase:
    max_pos = 65536
    cos, sin = torch.randn(max_pos, ROPE_DIM), torch.randn(max_pos, ROPE_DIM)
    positions = torch.randperm(max_pos)[:tokens] if order == "scattered" else torch.arange(tokens)
    out = (torch.empty(tokens, ROPE_DIM), torch.empty(tokens, ROPE_DIM))

    def run() -> Moved:
        dsv4_npu_ops.rope_gather(cos, sin, positions, out=out)
        return Moved(out, positions.nbytes + nbytes(out), nbytes(out), 0, num_elements(out))

    return CostCase("rope_gather", f"T={tokens} D={ROPE_DIM} {order}", 0, run)


def rope_tables(max_pos: int) -> CostCase:
    freqs = torch.polar(torch.ones(max_pos, ROPE_DIM // 2), torch.rand(max_pos, ROPE_DIM // 2))

    def run() -> Moved:
        tables = dsv4_npu_ops.build_rope_tables(freqs, torch.float32)
        return Moved(tables, freqs.nbytes, nbytes(tables), 0, num_elements(tables))

    return CostCase("rope_tables", f"{max_pos} positions D={ROPE_DIM}", 0, run)


def apply_rotary(tokens: int) -> CostCase:
    heads, head_dim = 64, 512
    q = torch.randn(tokens, heads, head_dim).bfloat16()
    kv = torch.randn(tokens, 1, head_dim).bfloat16()
    angles = torch.rand(tokens, ROPE_DIM // 2).repeat_interleave(2, -1)
    cos, sin = angles.cos(), angles.sin()

    def run() -> Moved:
        dsv4_npu_ops.apply_rotary(q, kv, cos, sin)
        elements = tokens * (heads + 1) * ROPE_DIM
        return Moved((q, kv), 2 * elements + nbytes((cos, sin)), 2 * elements, 0, elements)

    return CostCase("apply_rotary", f"T={tokens} H={heads} D={ROPE_DIM} bfloat16", 0, run)

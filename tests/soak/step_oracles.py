"""Metadata of a step of a ``CheckedAllocator``'s tables against the oracle, which reads the model's tables."""

import torch
from reference.kv_allocator import POOLS
from reference.step import UNIT_TOKENS, Address, capacity, row_of, step_oracle


def addresses_of(checked):
    """The model's tables."""
    layout = checked.layout
    return {
        pool: Address("pages", checked.model.table(pool), page=layout.page_size_of(pool))
        for pool in POOLS
        if layout.has_pool(pool)
    }


def expected_step(checked, requests, rows, longest):
    """Every field but RoPE rows, by name. rows: (start, new, entries); longest: length that the page tables cover."""
    pools, tokens = addresses_of(checked), sum(entries for _, _, entries in rows)
    sizes = {name: tokens for name in ("positions", "start_pos", "seqused", "kv_lens", "cu_seqlens")}
    sizes |= {f"positions_c{ratio}": capacity(tokens, len(rows), ratio) for ratio in (4, 128)}
    for pool, address in pools.items():
        unit = UNIT_TOKENS[pool]
        sizes[f"out_{pool}_loc"] = tokens if unit == 1 else capacity(tokens, len(rows), unit)
        if pool != "full":
            sizes[f"{pool}_page_table"] = max(1, -(-(longest // unit) // address.page))
    return step_oracle(pools, requests, rows, sizes, window=checked.layout.sliding_window)


def compare_metadata(checked, form, metadata, requests, lens, operands, longest):
    """form, lens, operands: prefill with prefix lengths, decode, or ragged with widths."""
    kind = {"prefill": "prefill", "decode": "final", "ragged": "verify"}[form]
    widths = [1] * len(lens) if form == "decode" else operands
    rows = [row_of(kind, length, width) for length, width in zip(lens, widths, strict=True)]
    for name, values in expected_step(checked, requests, rows, longest).items():
        mine = name.removeprefix("out_") if name in ("out_c4_loc", "out_c128_loc") else name
        if hasattr(metadata, mine):
            assert getattr(metadata, mine).tolist() == values, name


def compare_verify_step(checked, step, rope, requests, lens, widths):
    """Slots and RoPE rows of a ragged verify step; rope: cosine and sine tables."""
    longest = max(length + width for length, width in zip(lens, widths, strict=True) if length)
    compare_metadata(checked, "ragged", step.metadata, requests, lens, widths, longest)
    rows = [row_of("verify", length, width) for length, width in zip(lens, widths, strict=True)]
    for name, values in expected_step(checked, requests, rows, longest).items():
        if name.startswith("out_"):
            assert getattr(step.out_cache_loc, name).tolist() == values, name
    for pool in ("c4", "c128"):
        positions = getattr(step.metadata, f"positions_{pool}")
        for table, name in zip(rope, ("cos", "sin"), strict=True):
            assert torch.equal(getattr(step, f"{pool}_{name}"), table[positions]), name

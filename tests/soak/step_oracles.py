"""Metadata of a step of a ``CheckedAllocator``'s tables against the oracles, which read the model's tables."""

import torch
from reference.compress_metadata import compress_metadata
from reference.kv_allocator import POOLS, TOKENS_PER_UNIT
from reference.verify_bundle import verify_bundle


def tables_of(checked):
    return {pool: checked.model.rows[pool] if checked.layout.has_pool(pool) else None for pool in POOLS}


def compare_metadata(checked, form, metadata, rows, lens, operands, longest):
    """form, lens, operands: as the oracle takes them; longest: length that the page tables cover."""
    size = checked.layout.page_size
    expected = compress_metadata(
        form,
        tables_of(checked),
        rows,
        lens,
        operands,
        None,
        page=size,
        window=checked.layout.sliding_window,
        columns={pool: max(1, -(-(longest // unit) // size)) for pool, unit in TOKENS_PER_UNIT.items()},
    )
    for name, values in expected.items():
        assert getattr(metadata, name).tolist() == values, name


def compare_verify_step(checked, step, rope, rows, lens, widths):
    """Slots and RoPE rows of a ragged verify step; rope: cosine and sine tables."""
    longest = max(length + width for length, width in zip(lens, widths, strict=True) if length)
    compare_metadata(checked, "ragged", step.metadata, rows, lens, widths, longest)
    for name, values in verify_bundle(tables_of(checked), rows, lens, widths).items():
        assert getattr(step.out_cache_loc, name).tolist() == values, name
    for pool in ("c4", "c128"):
        positions = getattr(step.metadata, f"positions_{pool}")
        for table, name in zip(rope, ("cos", "sin"), strict=True):
            assert torch.equal(getattr(step, f"{pool}_{name}"), table[positions]), name

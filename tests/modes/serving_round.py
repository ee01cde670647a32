"""One round of serving through every op, as plain Python values, to compare with the same round in another mode.

Each op has its own tests against an oracle in the mode that users start in; here that mode is the truth.
"""

from typing import Any

import torch
from torch import Tensor

import dsv4_npu_ops as d
from dsv4_npu_ops.graph import BucketShape, GraphBuckets

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
CONTEXT = 512
ROPE_DIM = 8


def host(values: Any, dtype: torch.dtype = torch.int64) -> Tensor:
    """A CPU tensor, whatever the user's defaults are."""
    return torch.tensor(values, dtype=dtype, device="cpu")


def make(**options: bool) -> tuple[d.RequestTables, d.KVAllocator]:
    """Tables of all pools, and their allocator."""
    layout = d.KVLayout(
        page_size=16,
        sliding_window=32,
        max_requests=4,
        max_context_len=CONTEXT,
        num_pages=dict.fromkeys(POOLS, 40),
        device="cpu",
    )
    tables = d.RequestTables(layout)
    return tables, d.KVAllocator(layout, tables, **options)


def frequencies() -> Tensor:
    """Rotations of ROPE_DIM / 2 pairs at every position."""
    positions = torch.arange(CONTEXT, dtype=torch.float32, device="cpu")
    angles = positions[:, None] * torch.linspace(0.1, 1, ROPE_DIM // 2, dtype=torch.float32, device="cpu")
    return torch.polar(torch.ones_like(angles), angles)


def contents(tables: d.RequestTables) -> list[Tensor | None]:
    """Tables of all pools."""
    return [tables.table(pool) for pool in POOLS]


def plain(tree: Any) -> Any:
    """A tree of dataclasses and tensors as lists; a tensor together with its dtype."""
    if isinstance(tree, Tensor):
        return str(tree.dtype), tree.detach().to(torch.float64 if tree.is_floating_point() else torch.int64).tolist()
    if hasattr(tree, "__dataclass_fields__"):
        return {name: plain(getattr(tree, name)) for name in tree.__dataclass_fields__}
    if isinstance(tree, list | tuple):
        return [plain(value) for value in tree]
    return {name: plain(value) for name, value in tree.items()} if isinstance(tree, dict) else tree


def play() -> dict[str, Any]:
    """Prefill, decode, verify, draft, eviction, sharing and backups; what everything returned, and all tables."""
    tables, allocator = make(full_to_swa=True)
    cos, sin = d.build_rope_tables(frequencies(), torch.float32)
    rows, lengths = host([0, 1]), host([126, 5])
    done: dict[str, Any] = {"rope tables": (cos, sin)}
    done["prefill slots"] = allocator.alloc_extend([0, 1], [0, 0], lengths)
    done["prefill"] = d.build_compress_metadata_prefill(tables, rows, host([0, 0]), lengths)
    done["decode"] = d.build_compress_metadata_decode(tables, rows, lengths)
    done["reserved"] = allocator.reserve_extend([0, 1], lengths, [130, 9])
    done["verify"] = d.build_compress_metadata_verify(tables, rows, lengths, host([4, 2]))
    done["bundle"] = d.flatten_verify_bundle(tables, rows, lengths, 4, seq_lens_cpu=lengths)
    done["step"] = step = d.build_verify_step(tables, rows, lengths, 4, cos, sin)
    done["step into buffers"] = d.build_verify_step(
        tables, rows, lengths, 4, cos, sin, out=d.VerifyStep.empty(tables.layout, 2, 10, ROPE_DIM)
    )
    done["rows"] = token_rope = d.rope_gather(cos, sin, step.metadata.positions, dtype=torch.bfloat16)
    queries = torch.arange(8 * 2 * 12, dtype=torch.float32, device="cpu").view(8, 2, 12)
    d.apply_rotary(queries, None, *token_rope)
    done["rotated"] = queries
    done["advanced"] = d.advance_step(
        tables, rows, lengths, host([2, 1]), host(range(8)), num_draft_tokens=4, hidden_states=queries
    )
    done["drafts"] = d.build_draft_steps(lengths, cos, sin, 3, tables=tables, req_pool_indices=rows)
    blocks = host([[3, 4, 5, 6], [7, 8, 9, 1]], torch.int32)
    done["compressor"] = d.compressor_metadata(cos, sin, host([0, 4, 8]), lengths, blocks, 16, 2, 4, 4, 2)
    done["c4 slots"] = d.c4_slots_from_full(step.out_cache_loc.out_full_loc, num_groups=4)
    copied = d.RequestTables(tables.layout)
    d.write_req_tables(copied, rows, lengths, host([130, 9]), done["bundle"])
    done["written"] = contents(copied)
    buckets = GraphBuckets(tables, [BucketShape(2, 4)], cos, sin, token_rope={"main": (cos, sin)})
    done["bucket"] = buckets.fill([0, 1], [126, 5], 4).refresh()
    done["shared"] = allocator.share_prefix([0], [2], [127])
    allocator.evict([0, 1], [128, 6])
    backup = allocator.backup_state()
    done["taken back"] = allocator.alloc_decode([0], [131])
    allocator.restore_state(backup)
    allocator.free([1])
    done["free pages"] = [allocator.available_pages(pool) for pool in POOLS]
    done["mapping"] = allocator.full_to_swa
    done["tables"] = contents(tables)
    return plain(done)

"""One op of each kind with values worked out by hand; each gives what is wrong, or None."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dsv4_npu_ops import (
    KVAllocator,
    KVLayout,
    OutCacheLoc,
    PageTable,
    RequestTables,
    advance_step,
    build_compress_metadata_verify,
    build_draft_steps,
    compressor_metadata,
    flatten_verify_bundle,
    rope_gather,
    write_req_tables,
)


def _tables(device: torch.device) -> RequestTables:
    """Pages of 4; request 1 has the full pages 5 and 7, and two pages of groups."""

    def table(*pages: int) -> Tensor:
        return torch.tensor([[0] * len(pages), list(pages)], dtype=torch.int32, device=device)

    pools = {"full": PageTable(table(5, 7, 0), 4), "c4": PageTable(table(3), 4), "c128": PageTable(table(2), 4)}
    return RequestTables.of(pools, sliding_window=4, max_context_len=12)


def _row(values: list[int], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def _wanted(**pairs: tuple[Tensor | None, list]) -> str | None:
    for name, (given, expected) in pairs.items():
        values = None if given is None else given.tolist()
        if values != expected:
            return f"{name} is {values}, expected {expected}"
    return None


def _reserve(device: torch.device) -> str | None:
    layout = KVLayout(4, 4, 2, 16, {"full": 4, "c4": 2}, device=str(device))
    loc = KVAllocator(layout, RequestTables(layout)).alloc_extend([1], [0], [6])
    return _wanted(full=(loc.out_full_loc, [4, 5, 6, 7, 8, 9]), c4=(loc.out_c4_loc, [4]))


def _bundle(device: torch.device) -> str | None:
    loc = flatten_verify_bundle(_tables(device), _row([1], device), _row([3], device), 3, num_tokens=3)
    return _wanted(full=(loc.out_full_loc, [23, 28, 29]), c4=(loc.out_c4_loc[:1], [12]))


def _verify(device: torch.device) -> str | None:
    step = build_compress_metadata_verify(
        _tables(device), _row([1], device), _row([3], device), 3, num_tokens=3, max_seq_len=6
    )
    return _wanted(
        positions_c4=(step.positions_c4[:1], [0]),
        start_pos=(step.start_pos, [3]),
        seqused=(step.seqused, [3]),
        c4_page_table=(step.c4_page_table, [[3]]),
    )


def _advance(device: torch.device) -> str | None:
    sampled = torch.tensor([[9, 8, -1]], dtype=torch.int64, device=device)
    step = advance_step(_tables(device), _row([1], device), _row([3], device), None, sampled)
    return _wanted(seq_lens=(step.seq_lens, [5]), token_ids=(step.token_ids, [8]))


def _drafts(device: torch.device) -> str | None:
    table = torch.eye(12, 2, device=device)
    steps = build_draft_steps(
        _row([3], device), table, table, 2, tables=_tables(device), req_pool_indices=_row([1], device), pool="full"
    )
    return _wanted(slots=(steps.slots, [[23], [28]]), kv_lens=(steps.kv_lens, [[4], [5]]))


def _rope(device: torch.device) -> str | None:
    table = torch.arange(8, dtype=torch.float32, device=device).view(4, 2)
    cos, sin = rope_gather(table, table, _row([2, 0], device), inverse=True)
    return _wanted(cos=(cos, [[4.0, 5.0], [0.0, 1.0]]), sin=(sin, [[-4.0, -5.0], [0.0, -1.0]]))


def _writes(device: torch.device) -> str | None:
    tables = _tables(device).select("full")
    slots = OutCacheLoc.empty(tables, 0, 0, device=device)
    slots.out_full_loc = _row([36, 37], device)
    write_req_tables(tables, _row([1], device), _row([8], device), _row([10], device), slots)
    return _wanted(full=(tables.table("full"), [[0, 0, 0], [5, 7, 9]]))


def _compressor(device: torch.device) -> str | None:
    rows = torch.zeros(12, 2, device=device)
    block_table = _row([1], device).view(1, 1)
    given = compressor_metadata(
        rows, rows, _row([0, 6], device), _row([1], device), block_table, 4, 1, 4, num_rows=2, num_reqs=1
    )
    return _wanted(slots=(given.slot_mapping, [4, -1]))


CHECKS: dict[str, Callable[[torch.device], str | None]] = {
    "allocation": _reserve,
    "verify bundle": _bundle,
    "verify metadata": _verify,
    "advance step": _advance,
    "draft steps": _drafts,
    "RoPE rows": _rope,
    "table writes": _writes,
    "compressor metadata": _compressor,
}

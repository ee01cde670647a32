"""Descriptions of a step in plain torch: what an engine does without these ops. Baselines of the benches."""

from functools import lru_cache

import torch
from torch import Tensor

import dsv4_npu_ops

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
RATIO = {"full": 1, "swa": 1, "c4": 4, "c128": 128, "c4_state": 1, "c128_state": 1}


def filled_tables(max_requests: int, max_context_len: int) -> dsv4_npu_ops.RequestTables:
    """Tables whose every entry is some page."""
    layout = dsv4_npu_ops.KVLayout(
        max_requests=max_requests,
        max_context_len=max_context_len,
        num_pages=dict.fromkeys(POOLS, 1 << 16),
        device=torch.get_default_device(),
    )
    tables = dsv4_npu_ops.RequestTables(layout)
    for pool in POOLS:
        pages = tables.table(pool)
        assert pages is not None
        pages.random_(1, 1 << 13)
    return tables


@lru_cache(maxsize=2)
def slot_tables(tables: dsv4_npu_ops.RequestTables) -> dict[str, Tensor]:
    """The same as tables of slots, one entry a unit: what an engine without these ops keeps."""
    slots = {}
    for pool in POOLS:
        pages = tables.table(pool)
        assert pages is not None
        page_size = tables.page_size_of(pool)
        units = pages[:, :, None] * page_size + torch.arange(page_size, dtype=pages.dtype)
        slots[pool] = units.flatten(1)[:, : max(1, tables.max_context_len // RATIO[pool])].contiguous()
    return slots


def as_slots(tables: dsv4_npu_ops.RequestTables) -> dsv4_npu_ops.RequestTables:
    """The same as an engine's tables of slots."""
    pools = {
        pool: dsv4_npu_ops.SlotTable(slots, tables.page_size_of(pool)) for pool, slots in slot_tables(tables).items()
    }
    return dsv4_npu_ops.RequestTables.of(
        pools, sliding_window=tables.sliding_window, max_context_len=tables.max_context_len
    )


def committed_lengths(rows: int, longest: int) -> tuple[Tensor, Tensor]:
    """Request indices and lengths of a batch whose requests use at least half of the context."""
    generator = torch.Generator().manual_seed(rows)
    return (
        torch.randperm(rows, generator=generator),
        torch.randint(longest // 2, longest, (rows,), generator=generator),
    )


def flatten_bundle(
    tables: dsv4_npu_ops.RequestTables, requests: Tensor, lengths: Tensor, width: int
) -> dict[str, Tensor]:
    """One slice a request and pool, then one concatenation a pool."""
    rows = list(zip(requests.tolist(), lengths.tolist(), strict=True))
    slots = {}
    for pool in POOLS:
        table, ratio = slot_tables(tables)[pool], RATIO[pool]
        slots[pool] = torch.cat([table[r, n // ratio : (n + width) // ratio] for r, n in rows])
    return slots


def _groups(
    tables: dsv4_npu_ops.RequestTables, pool: str, token_requests: Tensor, positions: Tensor, live: Tensor, rows: int
) -> tuple[Tensor, Tensor]:
    """Positions and slots of the groups that end at the given tokens, packed to the front of fixed buffers."""
    ratio, tokens = RATIO[pool], positions.shape[0]
    capacity = max(1, min(tokens, tokens // ratio + rows))
    ends = live & ((positions + 1) % ratio == 0)
    target = torch.where(ends, torch.cumsum(ends, 0) - 1, capacity)
    group = torch.where(ends, positions // ratio, 0)
    first = positions.new_zeros(capacity + 1).scatter_(0, target, group * ratio)[:capacity]
    table = slot_tables(tables)[pool]
    loc = table.new_zeros(capacity + 1).scatter_(0, target, table[token_requests, group])[:capacity]
    return first, loc


def _page_table(table: Tensor, requests: Tensor, first: Tensor, end: Tensor, columns: int, filler: int) -> Tensor:
    """Pages of units j * 128 with first <= j * 128 < end."""
    unit = torch.arange(columns) * 128
    slots = table[requests[:, None], unit.clamp(max=table.shape[1] - 1)[None, :]]
    named = (unit[None, :] >= first[:, None]) & (unit[None, :] < end[:, None])
    return torch.where(named, slots // 128, filler)


def _describe(
    tables: dsv4_npu_ops.RequestTables, requests: Tensor, start: Tensor, new: Tensor, positions: Tensor, owner: Tensor
) -> dict[str, Tensor]:
    """Everything but the token positions, for prefill and verify alike. owner: row of each token."""
    rows, context = requests.shape[0], tables.max_context_len
    live, final = new > 0, start + new
    result = {
        "start_pos": start.to(torch.int32),
        "seqused": new.to(torch.int32),
        "kv_lens": torch.where(live, final, 1).to(torch.int32),
        "cu_seqlens": torch.nn.functional.pad(torch.cumsum(new, 0), (1, 0)).to(torch.int32),
    }
    token_requests, token_live = requests[owner], live[owner]
    for pool in ("c4", "c128"):
        result[f"positions_{pool}"], result[f"{pool}_loc"] = _groups(
            tables, pool, token_requests, positions, token_live, rows
        )
    zero = torch.zeros_like(start)
    swa_first = (start - tables.sliding_window + 1).clamp(min=0) // 128 * 128
    swa = _page_table(slot_tables(tables)["swa"], requests, swa_first, final, -(-context // 128), -1)
    swa[:, 0] = torch.where(live, swa[:, 0], 0)
    result["swa_page_table"] = swa
    for pool in ("c4", "c128"):
        ratio = RATIO[pool]
        columns = max(1, -(-(context // ratio) // 128))
        result[f"{pool}_page_table"] = _page_table(
            slot_tables(tables)[pool], requests, zero, final // ratio, columns, -1
        )
    for pool, ratio, overlap in (("c4_state", 4, 1), ("c128_state", 128, 0)):
        first = ((start // ratio - overlap) * ratio).clamp(min=0) // 128 * 128
        result[f"{pool}_page_table"] = _page_table(
            slot_tables(tables)[pool], requests, first, final, -(-context // 128), 0
        )
    return result


def verify_metadata(
    tables: dsv4_npu_ops.RequestTables, requests: Tensor, lengths: Tensor, width: int
) -> dict[str, Tensor]:
    live = lengths > 0
    start, new = torch.where(live, lengths, 0), torch.where(live, width, 0)
    positions = torch.where(live[:, None], lengths[:, None] + torch.arange(width), 0).reshape(-1)
    owner = torch.arange(requests.shape[0]).repeat_interleave(width)
    result = _describe(tables, requests, start, new, positions, owner)
    result["cu_seqlens"] = torch.arange(requests.shape[0] + 1, dtype=torch.int32) * width
    result["positions"] = positions
    return result


def prefill_metadata(
    tables: dsv4_npu_ops.RequestTables, requests: Tensor, prefixes: Tensor, lengths: Tensor
) -> dict[str, Tensor]:
    new = lengths - prefixes
    start = torch.where(new > 0, prefixes, 0)
    owner = torch.arange(requests.shape[0]).repeat_interleave(new)
    offset = torch.cumsum(new, 0) - new
    positions = start[owner] + torch.arange(owner.shape[0]) - offset[owner]
    result = _describe(tables, requests, start, new, positions, owner)
    result["positions"] = positions
    return result

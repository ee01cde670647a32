"""Page lists of a request for prefill-decode transfer against the usual way: slots to the host, then pages.

The usual way reads tables of slots, which are made beforehand.
"""

from collections.abc import Iterator

import torch
from bench_reserve_extend import PAGE_SIZE, make_allocator
from harness import Case

from dsv4_npu_ops import RequestTables
from dsv4_npu_ops.disagg import StateType, state_payloads

Slots = dict[str, torch.Tensor]
"""By pool, the slots of all units of one request."""


def slots_of(tables: RequestTables, request: int) -> Slots:
    offsets = torch.arange(PAGE_SIZE, dtype=torch.int32)
    pages = {pool: address.table[request] for pool, address in tables.pools.items()}
    return {pool: (page[:, None] * PAGE_SIZE + offsets).flatten() for pool, page in pages.items()}


def slots_to_pages(all_slots: Slots, window: int, seq_len: int, prefix_len: int) -> dict[str, list[int]]:
    """Every kind by itself: all of its slots, their pages, each page once."""
    spans = {
        "swa": (max(prefix_len, seq_len - window + 1), seq_len),
        "c4": (prefix_len // 4, seq_len // 4),
        "c128": (prefix_len // 128, seq_len // 128),
        "indexer": (prefix_len // 4, seq_len // 4),
        "c4_state": (max(0, (seq_len // 4 - 1) * 4), seq_len),
        "c128_state": (seq_len // 128 * 128, seq_len),
    }
    pages = {}
    for kind, (first, end) in spans.items():
        slots = all_slots["c4" if kind == "indexer" else kind][first:end]
        pages[kind] = torch.unique_consecutive(slots.cpu() // PAGE_SIZE).tolist()
    return pages


def cases() -> Iterator[Case]:
    """Requests of 8k to 128k tokens, without a prefix and with most of the prompt in the receiver's cache."""
    for seq_len, prefix_len in ((8190, 0), (8190, 7936), (131070, 0)):
        alloc = make_allocator(2, seq_len)
        alloc.alloc_extend([1], [0], [seq_len])
        tables = alloc.tables
        slots, window = slots_of(tables, 1), tables.sliding_window
        ours = {kind.value: pages for kind, pages in state_payloads(tables, 1, seq_len, prefix_len).items()}
        assert ours == slots_to_pages(slots, window, seq_len, prefix_len) and len(ours) == len(StateType)
        yield Case(
            "state_payloads",
            f"L={seq_len} prefix={prefix_len}",
            lambda step=(tables, 1, seq_len, prefix_len): state_payloads(*step),
            lambda step=(slots, window, seq_len, prefix_len): slots_to_pages(*step),
            "slots to host, unique pages",
        )

"""Allocation over six pools against the page-by-page extension that engines do with torch, once a pool."""

from collections.abc import Callable, Iterator

import torch
from harness import Case

import dsv4_npu_ops
from dsv4_npu_ops.layout import POOLS, RAW_TOKENS_PER_SLOT

PAGE_SIZE = 128
PHASES = PAGE_SIZE
"""Steps after which a decode of any width has met every offset in a page."""


def make_allocator(batch: int, max_len: int) -> dsv4_npu_ops.KVAllocator:
    """A cache in which every one of `batch` requests can grow to `max_len`."""
    layout = dsv4_npu_ops.KVLayout(
        page_size=PAGE_SIZE,
        max_requests=batch,
        max_context_len=max_len,
        num_pages={pool: batch * (max_len // RAW_TOKENS_PER_SLOT[pool] // PAGE_SIZE + 2) for pool in POOLS},
        device=torch.get_default_device(),
    )
    return dsv4_npu_ops.KVAllocator(layout, dsv4_npu_ops.RequestTables(layout))


def growing(
    batch: int, context: int, width: int, step: Callable[..., object], reset: Callable[[], None], max_len: int
) -> Callable[[], None]:
    """Calls step(prefixes, seqs) with lengths that grow by `width` from `context` on, and starts over at `max_len`."""
    length = context

    def run() -> None:
        nonlocal length
        if length + width > max_len:
            reset()
            length = context
        step([length] * batch, [length + width] * batch)
        length += width

    return run


def extend_one_pool(
    table: torch.Tensor,
    free_pages: torch.Tensor,
    requests: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
) -> torch.Tensor:
    """Slots of one pool, page by page: the rest of the started page, then one page after another. The table holds
    slots, as engines' do."""
    offsets = torch.arange(PAGE_SIZE, dtype=torch.int32)
    widths = ends - starts
    out_ends = torch.cumsum(widths, 0)
    slots = torch.empty(int(out_ends[-1]), dtype=torch.int32)
    taken = 0
    for i in range(len(starts)):
        unit, out = starts[i], out_ends[i] - widths[i]
        while unit < ends[i]:
            offset = unit % PAGE_SIZE
            count = torch.minimum(ends[i] - unit, PAGE_SIZE - offset)
            if offset > 0:
                page = table[requests[i], unit - 1] // PAGE_SIZE
            else:
                page = free_pages[taken]
                taken += 1
            slots[out : out + count] = page * PAGE_SIZE + offset + offsets[:count]
            table[requests[i], unit : unit + count] = slots[out : out + count]
            unit, out = unit + count, out + count
    return slots


def page_by_page(batch: int, max_len: int) -> Callable[[torch.Tensor, torch.Tensor], list[torch.Tensor]]:
    """The same reservation with torch, pool after pool; lengths are tensors, as engines pass them."""
    tables = {
        pool: torch.full((batch, max_len // RAW_TOKENS_PER_SLOT[pool] + 1), PAGE_SIZE, dtype=torch.int32)
        for pool in POOLS
    }
    free_pages = torch.arange(1, batch * (max_len // PAGE_SIZE + 2), dtype=torch.int32)
    requests = torch.arange(batch)

    def reserve(prefix_lens: torch.Tensor, seq_lens: torch.Tensor) -> list[torch.Tensor]:
        return [
            extend_one_pool(tables[pool], free_pages, requests, prefix_lens // u, seq_lens // u)
            for pool, u in RAW_TOKENS_PER_SLOT.items()
        ]

    return reserve


def verify_case(batch: int, context: int, width: int, target: float | None = None) -> Case:
    """A speculative step: every request grows by `width`."""
    max_len = context + 64 * PAGE_SIZE
    alloc = make_allocator(batch, max_len)
    requests = list(range(batch))

    def start() -> None:
        alloc.alloc_extend(requests, [0] * batch, [context] * batch)

    def restart() -> None:
        alloc.free(requests)
        start()

    start()
    reserve = page_by_page(batch, max_len)
    steps = [
        (torch.full((batch,), context + phase), torch.full((batch,), context + phase + width))
        for phase in range(0, PHASES, width)
    ]
    turn = 0

    def baseline() -> None:
        nonlocal turn
        turn = (turn + 1) % len(steps)
        reserve(*steps[turn])

    return Case(
        "reserve_extend",
        f"B={batch} L={context} n={width} six pools",
        growing(batch, context, width, lambda p, s: alloc.reserve_extend(requests, p, s), restart, max_len),
        baseline,
        "page by page in torch",
        num_outputs=6,
        target=target,
    )


def prefill_case(batch: int, tokens: int) -> Case:
    """Prompts of `tokens` tokens start and end."""
    alloc = make_allocator(batch, tokens)
    requests = list(range(batch))
    zeros, lengths = torch.zeros(batch, dtype=torch.int64), torch.full((batch,), tokens)
    reserve = page_by_page(batch, tokens)

    def start_and_free() -> None:
        alloc.alloc_extend(requests, [0] * batch, [tokens] * batch)
        alloc.free(requests)

    return Case(
        "alloc_extend + free",
        f"B={batch} {tokens} tokens",
        start_and_free,
        lambda: reserve(zeros, lengths),
        "page by page in torch, no free",
        num_outputs=6,
    )


def rollback_case(batch: int, context: int, width: int) -> Case:
    """A reservation that is taken back, as when a batch is retracted."""
    alloc = make_allocator(batch, context + PAGE_SIZE)
    requests = list(range(batch))
    prefixes, seqs = [context] * batch, [context + width] * batch
    alloc.alloc_extend(requests, [0] * batch, prefixes)
    reserve = page_by_page(batch, context + PAGE_SIZE)
    prefix_lens, seq_lens = torch.tensor(prefixes), torch.tensor(seqs)

    def reserve_and_restore() -> None:
        backup = alloc.backup_state()
        alloc.reserve_extend(requests, prefixes, seqs)
        alloc.restore_state(backup)

    return Case(
        "backup, reserve, restore",
        f"B={batch} L={context} n={width}",
        reserve_and_restore,
        lambda: reserve(prefix_lens, seq_lens),
        "page by page in torch, no restore",
        num_outputs=6,
    )


def cases() -> Iterator[Case]:
    """The shape with a target first, then growth in the batch, then the calls around it."""
    yield verify_case(64, 8192, 4, target=200)
    yield verify_case(1, 8192, 4)
    yield verify_case(1024, 256, 4)
    yield verify_case(4096, 256, 4)
    yield prefill_case(32, 2048)
    yield rollback_case(64, 8192, 4)

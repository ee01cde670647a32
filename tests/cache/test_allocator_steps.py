"""The allocator over many speculative or plain steps of one request."""

import resource

import pytest
from backends import KERNEL_SIM, NPU

from cache.small_cache import make, slots_of

# Copying a call's tensors to an NPU and back takes a hundred times as long as the call itself on a CPU, a simulated
# kernel ten times. 140 tokens are more than one group of either ratio.
LONGEST, STEPS = (60, 1_000) if NPU else (140, 5_000) if KERNEL_SIM else (300, 100_000)
STATE_RATIOS = {"c4_state": 4, "c128_state": 128}


def state_start(length, ratio, page_size):
    needed = max(0, (length // ratio - (1 if ratio == 4 else 0)) * ratio)
    return needed - needed % page_size


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("width", range(1, 9))
def test_any_accepted_prefix_finds_its_state(width, page_size):
    """Case 14: whatever is accepted, the state that later groups read has stayed where it was written."""
    for accepted in range(1, width + 1):
        alloc, tables = make(page_size=page_size, pages=400, max_context_len=320)
        one_by_one, tables_one_by_one = make(page_size=page_size, pages=400, max_context_len=320)
        length = 10
        for target in (alloc, one_by_one):
            target.alloc_extend([0], [0], [length])
        written = {pool: slots_of(tables, pool, 0) for pool in STATE_RATIOS}
        while length + width <= LONGEST:
            loc = alloc.reserve_extend([0], [length], [length + width])
            for pool in STATE_RATIOS:
                written[pool][length : length + accepted] = getattr(loc, f"out_{pool}_loc").tolist()[:accepted]
            for seq in range(length + 1, length + accepted + 1):
                one_by_one.alloc_decode([0], [seq])
                one_by_one.evict([0], [seq])
            length += accepted
            alloc.evict([0], [length])
            for pool, ratio in STATE_RATIOS.items():
                start = state_start(length, ratio, page_size)
                row = slots_of(tables, pool, 0)
                assert row[start:length] == written[pool][start:length]
                assert all(row[start:length]) and not any(row[:start])
                plain = slots_of(tables_one_by_one, pool, 0)
                assert [slot > 0 for slot in plain[:length]] == [slot > 0 for slot in row[:length]]


def test_many_steps_with_an_eviction_each_grow_nothing():
    """Every other step is a verify of 5 tokens, of which any number is accepted."""
    width = 5
    pages = dict(pages=10, full=1600, c4=400, c128=14)
    alloc, _ = make(page_size=128, max_context_len=2 * STEPS + 200, max_requests=1, **pages)
    alloc.alloc_extend([0], [0], [100])
    length, peak_kib = 100, None
    for step in range(STEPS):
        if step % 2:
            alloc.reserve_extend([0], [length], [length + width])
            length += 1 + step // 2 % width
        else:
            alloc.alloc_decode([0], [length + 1])
            length += 1
        alloc.evict([0], [length])
        if step % 1000 == 0:
            assert all(alloc.available_pages(pool) >= 7 for pool in ("swa", "c4_state", "c128_state"))
        if step == STEPS // 10:
            peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kib < 4096
    alloc.free([0])
    assert alloc.available_pages("full") == 1600

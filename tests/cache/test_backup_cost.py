"""A restore costs what it takes back, whatever the backups around it have logged (case 38)."""

import time

import pytest

from cache.small_cache import make

ROWS, STEPS = 64, 8000
SHARED_PAGES = 1 << 19


def seconds_of_restore(alloc, length, request=0):
    """Processor time of the quickest of many restores, each of four tokens of one request."""
    quickest = float("inf")
    for _ in range(20):
        backup = alloc.backup_state()
        alloc.reserve_extend([request], [length], [length + 4])
        begin = time.process_time()
        alloc.restore_state(backup)
        quickest = min(quickest, time.process_time() - begin)
    return quickest


@pytest.mark.cpu_only
def test_an_inner_restore_does_not_pay_for_the_outer_backup():
    pages = ROWS * (STEPS + 4) // 128 + ROWS
    alloc, _ = make(max_requests=ROWS, max_context_len=STEPS + 4, pages=pages, swa=None, c128_state=None)
    rows = list(range(ROWS))
    alloc.alloc_extend(rows, [0] * ROWS, [1] * ROWS)
    alone = seconds_of_restore(alloc, 1)
    outer = alloc.backup_state()
    free = alloc.available_pages("full")
    for length in range(2, STEPS + 1):
        alloc.alloc_decode(rows, [length] * ROWS)
    inside = seconds_of_restore(alloc, STEPS)
    # Copying the log of the outer backup took more than a thousand times as long.
    assert inside < 20 * alone
    alloc.restore_state(outer)
    assert alloc.available_pages("full") == free
    assert alloc.allocated_len(0) == 1


@pytest.mark.cpu_only
def test_a_restore_does_not_pay_for_the_pages_that_a_request_shares():
    alloc, _ = make(
        page_size=1, pages=SHARED_PAGES + 20, max_context_len=SHARED_PAGES + 4, swa=None, c4_state=None, c128_state=None
    )
    alloc.alloc_extend([0], [0], [SHARED_PAGES])
    unshared = seconds_of_restore(alloc, SHARED_PAGES)
    assert alloc.share_prefix([0], [1], [SHARED_PAGES]).starts == [SHARED_PAGES]
    assert seconds_of_restore(alloc, SHARED_PAGES, request=1) < 20 * unshared

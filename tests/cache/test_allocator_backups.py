"""Backups: restore takes back exactly what was allocated since (docs/spec.md, invariants)."""

import pytest

from cache.small_cache import POOLS, make, pages_of, state_of


def test_rollback_returns_every_page():
    """Case 10 (a)."""
    alloc, tables = make(c4=9, max_context_len=2048)
    alloc.alloc_extend([0], [0], [512])
    assert alloc.available_pages("c4") == 8
    before = state_of(alloc, tables)
    for _ in range(9):
        backup = alloc.backup_state()
        alloc.reserve_extend([0], [512], [516])
        assert alloc.available_pages("c4") == 7
        alloc.restore_state(backup)
        assert state_of(alloc, tables) == before


def test_rollback_gives_the_same_slots_again():
    """Case 10 (b)."""
    alloc, _ = make()
    alloc.alloc_extend([0, 1], [0, 0], [126, 512])
    backup = alloc.backup_state()
    first = alloc.reserve_extend([1, 0], [512, 126], [516, 130])
    alloc.restore_state(backup)
    second = alloc.reserve_extend([1, 0], [512, 126], [516, 130])
    for a, b in zip(first.in_order(), second.in_order(), strict=True):
        assert a.tolist() == b.tolist()


def slots(loc):
    return [pool.tolist() for pool in loc.in_order()]


def test_pages_return_to_the_front_in_the_order_of_taking():
    alloc, _ = make(page_size=1, pages=12, max_context_len=16, c4=None, c128=None, c4_state=None, c128_state=None)
    alloc.alloc_extend([0, 1], [0, 0], [2, 2])
    backup = alloc.backup_state()
    alloc.reserve_extend([1, 0], [2, 2], [4, 3])
    alloc.alloc_extend([2], [0], [2])
    alloc.restore_state(backup)
    assert alloc.alloc_extend([3], [0], [8]).out_full_loc.tolist() == [5, 6, 7, 8, 9, 10, 11, 12]


def test_a_page_that_was_started_before_stays():
    alloc, tables = make(page_size=16, max_context_len=96)
    alloc.alloc_extend([0], [0], [20])
    before = state_of(alloc, tables)
    backup = alloc.backup_state()
    alloc.reserve_extend([0], [20], [40])
    alloc.restore_state(backup)
    assert state_of(alloc, tables) == before
    assert alloc.reserve_extend([0], [20], [22]).out_full_loc.tolist() == [36, 37]


def test_backups_nest():
    alloc, tables = make(page_size=16, max_context_len=96)
    alloc.alloc_extend([0], [0], [10])
    states = [state_of(alloc, tables)]
    outer = alloc.backup_state()
    alloc.reserve_extend([0], [10], [20])
    states.append(state_of(alloc, tables))
    inner = alloc.backup_state()
    alloc.reserve_extend([0], [20], [40])
    alloc.alloc_extend([1], [0], [5])
    alloc.restore_state(inner)
    assert state_of(alloc, tables) == states[1]
    alloc.restore_state(outer)
    assert state_of(alloc, tables) == states[0]


def test_an_outer_backup_takes_back_what_a_discarded_inner_one_kept():
    alloc, tables = make(page_size=16, max_context_len=96)
    alloc.alloc_extend([0], [0], [10])
    before = state_of(alloc, tables)
    outer = alloc.backup_state()
    alloc.reserve_extend([0], [10], [20])
    inner = alloc.backup_state()
    alloc.reserve_extend([0], [20], [40])
    alloc.discard_state(inner)
    assert alloc.allocated_len(0) == 40
    alloc.restore_state(outer)
    assert state_of(alloc, tables) == before


def test_discard_keeps_everything():
    alloc, tables = make()
    backup = alloc.backup_state()
    alloc.alloc_extend([0], [0], [300])
    state = state_of(alloc, tables)
    alloc.discard_state(backup)
    assert state_of(alloc, tables) == state


@pytest.mark.parametrize("end", ["restore_state", "discard_state"])
def test_only_the_newest_open_backup_can_end(end):
    alloc, tables = make()
    outer, inner = alloc.backup_state(), alloc.backup_state()
    alloc.alloc_extend([0], [0], [5])
    state = state_of(alloc, tables)
    with pytest.raises(ValueError, match=f"{end}: backup is {outer}, expected {inner}, the newest one that is open"):
        getattr(alloc, end)(outer)
    assert state_of(alloc, tables) == state
    alloc.discard_state(inner)
    with pytest.raises(ValueError, match=f"{end}: backup is {inner}, expected {outer}"):
        getattr(alloc, end)(inner)
    alloc.restore_state(outer)
    with pytest.raises(ValueError, match=f"{end}: backup is {outer}, expected an open backup, but there is none"):
        getattr(alloc, end)(outer)


def test_what_was_evicted_stays_evicted():
    alloc, tables = make(page_size=16, window=16, max_context_len=128, pages=20)
    alloc.alloc_extend([0], [0], [70])
    backup = alloc.backup_state()
    alloc.reserve_extend([0], [70], [90])
    alloc.evict([0], [64])
    alloc.restore_state(backup)
    assert alloc.allocated_len(0) == 70
    assert pages_of(tables, "swa", 0).keys() == {3, 4}
    assert alloc.available_pages("swa") == 18
    with pytest.raises(ValueError, match=r"needs pool swa from position 32, .* nothing before 48 \(evicted\)"):
        alloc.reserve_extend([0], [60], [71])
    alloc.reserve_extend([0], [70], [71])


def test_pages_that_were_allocated_and_evicted_since_are_freed_once():
    alloc, _ = make(page_size=16, window=16, max_context_len=128, pages=8)
    alloc.alloc_extend([0], [0], [10])
    backup = alloc.backup_state()
    alloc.reserve_extend([0], [10], [100])
    alloc.evict([0], [100])
    free_swa = alloc.available_pages("swa")
    alloc.restore_state(backup)
    assert alloc.available_pages("swa") == 8, "the window had left the page of the first ten tokens"
    assert alloc.available_pages("full") == 7
    assert free_swa == 6
    alloc.free([0])
    assert all(alloc.available_pages(pool) == 8 for pool in POOLS)


def test_a_request_started_since_is_gone_and_one_freed_since_stays_free():
    alloc, _ = make()
    alloc.alloc_extend([0, 1], [0, 0], [5, 5])
    backup = alloc.backup_state()
    alloc.alloc_extend([2], [0], [5])
    alloc.free([0])
    alloc.restore_state(backup)
    for req in (0, 2):
        with pytest.raises(ValueError, match="never started or has been freed"):
            alloc.allocated_len(req)
    assert alloc.allocated_len(1) == 5
    assert alloc.available_pages("full") == 7


def test_a_row_that_was_freed_and_started_again_is_gone():
    alloc, tables = make(page_size=16, max_context_len=96)
    alloc.alloc_extend([0], [0], [40])
    backup = alloc.backup_state()
    alloc.reserve_extend([0], [40], [60])
    alloc.free([0])
    alloc.alloc_extend([0], [0], [60])
    alloc.restore_state(backup)
    with pytest.raises(ValueError, match="never started or has been freed"):
        alloc.allocated_len(0)
    assert all(alloc.available_pages(pool) == 8 for pool in POOLS)
    assert not any(table.any() for table in tables.op_tables)


def test_lengths_return_even_when_no_page_was_taken():
    alloc, _ = make()
    alloc.alloc_extend([0], [0], [5])
    backup = alloc.backup_state()
    alloc.alloc_decode([0], [6])
    alloc.alloc_decode([0], [7])
    alloc.restore_state(backup)
    assert alloc.allocated_len(0) == 5


def test_an_empty_restore():
    alloc, tables = make()
    alloc.alloc_extend([0], [0], [200])
    before = state_of(alloc, tables)
    alloc.restore_state(alloc.backup_state())
    assert state_of(alloc, tables) == before

"""When ``alloc_extend`` from 0 starts a request, and when somebody forgot ``free`` (docs/spec.md, allocation)."""

import pytest

from cache.small_cache import make, slots_of, state_of


def test_a_new_request_in_a_row_that_was_not_freed_is_refused():
    alloc, tables = make(page_size=16, pages=16)
    alloc.alloc_extend([0, 1], [0, 0], [40, 20])
    before = state_of(alloc, tables)
    message = r"prefix_lens\[1\] is 0 for request 1, which is running with 20 allocated tokens, expected free\(\)"
    for length in (0, 5, 20, 90):
        with pytest.raises(ValueError, match=f"alloc_extend: {message}"):
            alloc.alloc_extend([2, 1], [0, 0], [7, length])
        assert state_of(alloc, tables) == before
    alloc.free([1])
    alloc.alloc_extend([2, 1], [0, 0], [7, 90])
    assert alloc.allocated_len(1) == 90


def test_chunks_after_the_first_do_not_start_at_0():
    alloc, tables = make(page_size=16)
    alloc.alloc_extend([0], [0], [20])
    alloc.alloc_extend([0], [20], [40])
    assert slots_of(tables, "full", 0)[:40] == list(range(16, 56))


def test_a_start_without_tokens_goes_on_from_0():
    """Empty requests and shared prefixes of 0 are running, and have nothing that could be lost."""
    alloc, _ = make(page_size=16, window=16)
    alloc.alloc_extend([0, 1], [0, 0], [64, 0])
    alloc.evict([0], [64])
    assert alloc.share_prefix([0], [2], [48]).starts == [0]
    alloc.alloc_extend([1, 2], [0, 0], [5, 6])
    assert alloc.allocated_len(1) == 5 and alloc.allocated_len(2) == 6


def test_a_first_chunk_that_was_taken_back_or_did_not_fit_starts_again():
    alloc, tables = make(page_size=16, pages=4)
    backup = alloc.backup_state()
    alloc.alloc_extend([0], [0], [40])
    alloc.restore_state(backup)
    with pytest.raises(RuntimeError, match="pool full lacks 1 page"):
        alloc.alloc_extend([0], [0], [65])
    alloc.alloc_extend([0], [0], [40])
    assert slots_of(tables, "full", 0)[:40] == list(range(16, 56))


def test_drafts_of_an_empty_request_that_were_all_rejected_are_reserved_again():
    """``reserve_extend`` starts nothing, so that its prefix may go back to 0."""
    alloc, _ = make(page_size=16)
    alloc.alloc_extend([0], [0], [0])
    first = alloc.reserve_extend([0], [0], [5])
    assert alloc.reserve_extend([0], [0], [5]).out_full_loc.tolist() == first.out_full_loc.tolist()

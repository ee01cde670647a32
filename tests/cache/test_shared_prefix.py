"""Requests that start on the cached prefix of another one (docs/spec.md, shared prefixes), with known answers."""

import pytest
import torch

import dsv4_npu_ops
from cache.small_cache import POOLS, make, pages_of, slots_of, state_of

WINDOWED = ("swa", "c4_state", "c128_state")


def small(**pages):
    return make(page_size=16, window=16, max_context_len=512, **({"pages": 40} | pages))


def test_whole_pages_are_shared_and_the_last_one_is_copied():
    alloc, tables = small()
    alloc.alloc_extend([0], [0], [40])
    before = {pool: alloc.available_pages(pool) for pool in POOLS}
    shared = alloc.share_prefix([0], [2], [40])
    assert shared.starts == [40] and alloc.allocated_len(2) == 40
    assert set(shared.copies) == set(POOLS)
    for pool in POOLS:
        own, others = pages_of(tables, pool, 2), pages_of(tables, pool, 0)
        units = {"c4": 10, "c128": 0}.get(pool, 40)
        whole = units // 16
        assert all(own[index] == others[index] for index in own if index < whole), pool
        source_pages, destination_pages = shared.copies[pool]
        assert source_pages.dtype == destination_pages.dtype == torch.int32
        assert source_pages.tolist() == [page for index, page in others.items() if index == whole]
        assert destination_pages.tolist() == [page for index, page in own.items() if index == whole]
        assert alloc.available_pages(pool) == before[pool] - len(source_pages)
    assert pages_of(tables, "full", 2).keys() == {0, 1, 2}
    assert pages_of(tables, "swa", 2).keys() == {1, 2}, "only what the window of 40 tokens needs"


def test_a_prefix_that_ends_with_a_page_needs_no_copy():
    alloc, tables = make(max_context_len=1024)
    alloc.alloc_extend([0], [0], [512])
    shared = alloc.share_prefix([0], [1], [512])
    assert shared.starts == [512]
    assert pages_of(tables, "full", 1) == pages_of(tables, "full", 0)
    assert pages_of(tables, "c4", 1) == pages_of(tables, "c4", 0)
    copied = {pool: pages.numel() for pool, (pages, _) in shared.copies.items()}
    assert copied == {"full": 0, "swa": 0, "c4": 0, "c128": 1, "c4_state": 0, "c128_state": 0}, "4 of 128 groups"


def test_a_page_is_freed_when_its_last_owner_leaves():
    alloc, _ = small()
    alloc.alloc_extend([0], [0], [64])
    alloc.share_prefix([0, 0], [1, 2], [64, 64])
    assert alloc.available_pages("full") == 36
    alloc.free([0])
    assert alloc.available_pages("full") == 36
    alloc.free([2])
    assert alloc.available_pages("full") == 36
    alloc.free([1])
    assert all(alloc.available_pages(pool) == 40 for pool in POOLS)


def test_window_pages_are_freed_by_the_eviction_of_the_last_owner():
    alloc, tables = small()
    alloc.alloc_extend([0], [0], [64])
    alloc.share_prefix([0], [1], [64])
    alloc.reserve_extend([0, 1], [64, 64], [100, 100])
    free = alloc.available_pages("swa")
    alloc.evict([0], [100])  # before 80: four pages, of which request 1 still owns the one at 48
    assert alloc.available_pages("swa") == free + 4
    alloc.evict([1], [100])
    assert alloc.available_pages("swa") == free + 6
    assert pages_of(tables, "swa", 0).keys() == pages_of(tables, "swa", 1).keys() == {5, 6}


def test_a_prefix_whose_window_is_gone_starts_earlier():
    alloc, tables = small()
    alloc.alloc_extend([0], [0], [64])
    alloc.evict([0], [64])  # the window of 64 starts at 48
    for prefix, start in ((64, 64), (63, 63), (62, 0), (48, 0)):
        assert alloc.shareable_len(0, prefix) == start
    alloc.alloc_extend([1], [0], [100])
    alloc.evict([1], [64])
    assert alloc.shareable_len(1, 100) == 100
    # A prefill of 100 tokens keeps state from 96 on: no shorter length has what it reads.
    assert alloc.shareable_len(1, 99) == 0
    shared = alloc.share_prefix([0, 1], [2, 3], [62, 100])
    assert shared.starts == [0, 100]
    assert alloc.allocated_len(2) == 0 and not pages_of(tables, "full", 2)
    alloc.alloc_extend([2], [0], [5])


def test_the_start_is_the_largest_for_any_prefix():
    """Against the definition: window and states of the start, in whole pages, are there and were not skipped."""
    alloc, tables = make(page_size=16, window=16, max_context_len=512, pages=40)
    alloc.alloc_extend([0], [0], [70])
    alloc.alloc_extend([0], [70], [150])
    alloc.reserve_extend([0], [150], [300])
    alloc.evict([0], [60])

    def needed(pool, length):
        first = {
            "swa": length - 15,
            "c4_state": (length // 4 - 1) * 4,
            "c128_state": length // 128 * 128,
        }[pool]
        return max(0, first) // 16 * 16

    skipped = {"swa": range(0), "c4_state": range(70, 144), "c128_state": range(70, 128)}

    def startable(length):
        units = {pool: range(needed(pool, length), length) for pool in WINDOWED}
        return all(
            all(slots_of(tables, pool, 0)[unit] and unit not in skipped[pool] for unit in units[pool])
            for pool in WINDOWED
        )

    starts = [length for length in range(301) if startable(length)]
    for prefix in range(301):
        assert alloc.shareable_len(0, prefix) == max(length for length in starts if length <= prefix)


@pytest.mark.parametrize("call", ["alloc_extend", "reserve_extend", "alloc_decode"])
def test_a_shared_page_is_never_written(call):
    """Source and target alike are refused until they are alone."""
    alloc, tables = small(c4_state=None, c128_state=None)
    alloc.alloc_extend([0], [0], [40])
    alloc.share_prefix([0], [1], [40])
    before = state_of(alloc, tables)
    for req in (0, 1):
        message = rf"{call}: prefix_lens\[0\] is 31 for request {req}, whose step writes page 1 of pool full"
        with pytest.raises(ValueError, match=message + ", which other requests share, expected at least 32"):
            getattr(alloc, call)([req], *([[32]] if call == "alloc_decode" else [[31], [34]]))
        assert state_of(alloc, tables) == before
    alloc.reserve_extend([0, 1], [40, 40], [44, 44])
    assert tables.table("full")[0, 2] != tables.table("full")[1, 2]
    alloc.free([0])
    alloc.alloc_extend([1], [31], [44])


def test_a_target_goes_on_like_any_request():
    """Slots stay congruent and the pages of its own fill up from its copy on."""
    alloc, tables = small()
    alloc.alloc_extend([0], [0], [40])
    alloc.share_prefix([0], [1], [37])
    copied = pages_of(tables, "full", 1)[2]
    loc = alloc.reserve_extend([1], [37], [50])
    assert loc.out_full_loc[:11].tolist() == list(range(copied * 16 + 5, copied * 16 + 16))
    alloc.evict([1], [50])
    alloc.free([1])
    alloc.free([0])
    assert all(alloc.available_pages(pool) == 40 for pool in POOLS)


def test_a_target_can_be_shared_in_turn():
    alloc, tables = small()
    alloc.alloc_extend([0], [0], [64])
    alloc.share_prefix([0], [1], [64])
    alloc.reserve_extend([1], [64], [96])
    alloc.share_prefix([1], [2], [96])
    alloc.free([1])
    assert pages_of(tables, "full", 2).keys() == set(range(6))
    alloc.free([0])
    assert alloc.available_pages("full") == 40 - 6
    alloc.free([2])
    assert all(alloc.available_pages(pool) == 40 for pool in POOLS)


def test_restore_ends_what_was_shared_since():
    alloc, tables = small()
    alloc.alloc_extend([0], [0], [40])
    before = state_of(alloc, tables)
    backup = alloc.backup_state()
    first = alloc.share_prefix([0], [1], [40])
    alloc.reserve_extend([1], [40], [60])
    alloc.share_prefix([1], [2], [60])
    alloc.restore_state(backup)
    assert state_of(alloc, tables) == before
    second = alloc.share_prefix([0], [1], [40])
    for pool in POOLS:
        assert [pages.tolist() for pages in second.copies[pool]] == [pages.tolist() for pages in first.copies[pool]]
    alloc.free([0, 1])
    assert all(alloc.available_pages(pool) == 40 for pool in POOLS)


def test_restore_after_the_source_has_gone():
    alloc, tables = small()
    alloc.alloc_extend([0], [0], [64])
    backup = alloc.backup_state()
    alloc.share_prefix([0], [1], [64])
    alloc.free([0])
    assert alloc.available_pages("full") == 36
    alloc.restore_state(backup)
    assert all(alloc.available_pages(pool) == 40 for pool in POOLS)
    assert not any(table.any() for table in tables.op_tables)


def test_pages_taken_and_shared_since_return_to_the_front():
    alloc, _ = small()
    alloc.alloc_extend([0], [0], [16])
    backup = alloc.backup_state()
    taken = alloc.reserve_extend([0], [16], [64]).out_full_loc.tolist()
    alloc.share_prefix([0], [1], [64])
    alloc.restore_state(backup)
    assert alloc.reserve_extend([0], [16], [64]).out_full_loc.tolist() == taken


def test_a_backup_does_not_end_what_was_shared_before():
    alloc, tables = small()
    alloc.alloc_extend([0], [0], [64])
    alloc.share_prefix([0], [1], [64])
    before = state_of(alloc, tables)
    backup = alloc.backup_state()
    alloc.reserve_extend([0, 1], [64, 64], [70, 70])
    alloc.restore_state(backup)
    assert state_of(alloc, tables) == before
    backup = alloc.backup_state()
    alloc.free([0])
    alloc.restore_state(backup)
    assert pages_of(tables, "full", 1).keys() == {0, 1, 2, 3}
    assert alloc.available_pages("full") == 36


def test_the_mapping_follows():
    alloc, tables = make(page_size=16, window=16, max_context_len=512, pages=40, full_to_swa=True)
    alloc.alloc_extend([0], [0], [40])
    alloc.share_prefix([0], [1], [40])

    def mapped(req, begin, end):
        return alloc.full_to_swa[slots_of(tables, "full", req)[begin:end]].tolist()

    assert mapped(1, 32, 40) == slots_of(tables, "swa", 1)[32:40] != mapped(0, 32, 40)
    assert mapped(1, 16, 32) == slots_of(tables, "swa", 1)[16:32] == mapped(0, 16, 32)
    alloc.reserve_extend([0], [40], [60])
    alloc.evict([0], [60])
    assert mapped(0, 0, 16) == [0] * 16
    assert mapped(1, 16, 32) == slots_of(tables, "swa", 1)[16:32]
    alloc.free([1])
    assert mapped(0, 16, 32) == [0] * 16
    alloc.free([0])
    assert not alloc.full_to_swa.any()


def test_exhaustion_changes_nothing():
    alloc, tables = small(c4=2)
    alloc.alloc_extend([0, 3], [0, 0], [36, 36])
    before = state_of(alloc, tables)
    with pytest.raises(dsv4_npu_ops.PoolExhausted) as error:
        alloc.share_prefix([0, 3], [1, 2], [36, 36])
    assert (error.value.pool, error.value.needed_pages, error.value.free_pages) == ("c4", 2, 0)
    assert state_of(alloc, tables) == before


BAD_CALLS = [
    (([1], [2], [0]), r"sources\[0\] is 1, which was never started or has been freed"),
    (([-1], [2], [0]), r"sources\[0\] is -1, expected 0 <= request < 4"),
    (([0], [3], [0]), r"targets\[0\] is 3, which is running, expected a free row"),
    (([0], [0], [0]), r"targets\[0\] is 0, which is running"),
    (([0], [4], [0]), r"targets\[0\] is 4, expected 0 <= request < 4"),
    (([0, 0], [1, 1], [0, 0]), r"targets\[1\] is 1 again"),
    (([0], [1], [41]), r"prefix_lens\[0\] is 41, expected 0 <= prefix <= 40, the allocated length of request 0"),
    (([0], [1], [-1]), r"prefix_lens\[0\] is -1"),
    (([0, 3], [1], [4]), r"sources has 2 entries, expected 1 like targets"),
    (([0], [1], []), r"prefix_lens has 0 entries, expected 1 like targets"),
]


@pytest.mark.parametrize("arguments, message", BAD_CALLS, ids=[message for _, message in BAD_CALLS])
def test_bad_calls_say_what_is_wrong_and_change_nothing(arguments, message):
    alloc, tables = small()
    alloc.alloc_extend([0, 3], [0, 0], [40, 8])
    before = state_of(alloc, tables)
    with pytest.raises(ValueError, match=f"share_prefix: {message}"):
        alloc.share_prefix(*arguments)
    assert state_of(alloc, tables) == before


@pytest.mark.parametrize("source, prefix, message", [(1, 0, "source is 1, which"), (0, 41, "prefix_len is 41")])
def test_shareable_len_refuses(source, prefix, message):
    alloc, _ = small()
    alloc.alloc_extend([0], [0], [40])
    with pytest.raises(ValueError, match=f"shareable_len: {message}"):
        alloc.shareable_len(source, prefix)


@pytest.mark.cpu_only
def test_a_table_that_lost_a_slot_stops_the_call_and_nothing_changes():
    alloc, tables = small()
    alloc.alloc_extend([0], [0], [64])
    alloc.share_prefix([0], [2], [64])
    good = [table.clone() for table in tables.op_tables]
    tables.table("full")[0, 1] = 0
    broken = state_of(alloc, tables)
    with pytest.raises(ValueError, match="did something else write it"):
        alloc.share_prefix([0], [1], [64])
    assert state_of(alloc, tables) == broken
    tables.table("full")[2, 2] = 0
    alloc.free([0])
    broken = state_of(alloc, tables)
    with pytest.raises(ValueError, match="did something else write it"):
        alloc.free([2])
    assert state_of(alloc, tables) == broken
    for table, was in zip(tables.op_tables, good, strict=True):
        table[2] = was[2]
    alloc.free([2])
    assert all(alloc.available_pages(pool) == 40 for pool in POOLS)

"""The allocator's mapping from full slots to swa slots, and allocation of only the tail of the window."""

import pytest
import torch

from cache.small_cache import make, pages_of, slots_of, state_of
from dsv4_npu_ops import KVAllocator, KVLayout, RequestTables


def test_no_mapping_unless_asked_for():
    alloc, _ = make()
    assert alloc.full_to_swa is None


def test_a_mapping_needs_pages_of_one_size():
    layout = KVLayout(page_size={"full": 16, "swa": 8}, num_pages={"full": 4, "swa": 4})
    with pytest.raises(ValueError, match="full_to_swa is True, expected one page size for full and swa, got 16 and 8"):
        KVAllocator(layout, RequestTables(layout), full_to_swa=True)


@pytest.mark.parametrize("missing", ["full", "swa"])
def test_a_mapping_needs_both_pools(missing):
    pages = {"full": 4, "swa": 4, "c4": 4}
    del pages[missing]
    layout = KVLayout(num_pages=pages)
    with pytest.raises(ValueError, match="KVAllocator: full_to_swa is True, expected pools full and swa"):
        KVAllocator(layout, RequestTables(layout), full_to_swa=True)


def test_the_mapping_is_int64_and_takes_writes_of_its_type():
    """Case 15."""
    alloc, _ = make(full_to_swa=True)
    mapping = alloc.full_to_swa
    assert mapping.dtype == torch.int64 and mapping.shape == (9 * 128,)
    mapping[torch.tensor([3, 5])] = torch.tensor([2**40, 7])
    assert mapping[[3, 5]].tolist() == [2**40, 7]


@pytest.mark.parametrize("page_size", [1, 4, 64, 128, 256, 512])
def test_only_the_tail_of_the_window(page_size):
    """Case 15: of 300 tokens the first 172 are not mapped, the last 128 are; whole pages are taken."""
    alloc, tables = make(page_size=page_size, pages=400, max_context_len=512, full_to_swa=True)
    loc = alloc.alloc_extend([1], [0], [300], swa_tail=128)
    mapped = alloc.full_to_swa[loc.out_full_loc.long()]
    assert mapped[:172].tolist() == [0] * 172
    assert mapped[172:].tolist() == loc.out_swa_loc[172:].tolist()
    assert (mapped[172:] > 0).all()
    first = 172 - 172 % page_size
    swa = torch.tensor(slots_of(tables, "swa", 1))[:300]
    assert loc.out_swa_loc.tolist() == swa.tolist()
    assert not swa[:first].any() and (swa[first:] > 0).all()
    taken = -(-300 // page_size) - first // page_size
    assert alloc.available_pages("swa") == 400 - taken

    step = alloc.reserve_extend([1], [300], [304])
    assert alloc.full_to_swa[step.out_full_loc.long()].tolist() == step.out_swa_loc.tolist()
    alloc.evict([1], [304])
    alloc.free([1])
    assert alloc.available_pages("swa") == 400
    assert not alloc.full_to_swa.any()


def test_a_tail_longer_than_the_chunk_is_the_chunk():
    alloc, tables = make(full_to_swa=True)
    loc = alloc.alloc_extend([0, 1], [0, 0], [10, 200], swa_tail=50)
    assert pages_of(tables, "swa", 0).keys() == {0} and pages_of(tables, "swa", 1).keys() == {1}
    mapped = alloc.full_to_swa[loc.out_full_loc.long()]
    assert (mapped[:10] > 0).all() and not mapped[10:160].any() and (mapped[160:] > 0).all()


@pytest.mark.parametrize("tail", [0, -1])
def test_a_tail_has_at_least_one_token(tail):
    alloc, tables = make()
    before = state_of(alloc, tables)
    with pytest.raises(ValueError, match=f"alloc_extend: swa_tail is {tail}, expected at least 1"):
        alloc.alloc_extend([0], [0], [300], swa_tail=tail)
    assert state_of(alloc, tables) == before


def test_a_step_that_reads_before_the_tail_is_refused():
    alloc, _ = make(window=256, max_context_len=2048, pages=16)
    alloc.alloc_extend([0], [0], [600], swa_tail=100)
    with pytest.raises(ValueError, match=r"reads positions \[256, 600\) of pool swa"):
        alloc.reserve_extend([0], [600], [604])


def test_eviction_unmaps_what_it_frees():
    alloc, tables = make(page_size=16, window=16, max_context_len=128, pages=20, full_to_swa=True)
    full = alloc.alloc_extend([0], [0], [70]).out_full_loc.long()
    alloc.evict([0], [64])
    assert not alloc.full_to_swa[full[:48]].any()
    assert alloc.full_to_swa[full[48:]].tolist() == slots_of(tables, "swa", 0)[48:70]


def test_restore_unmaps_what_it_takes_back():
    alloc, _ = make(page_size=16, max_context_len=128, pages=20, full_to_swa=True)
    alloc.alloc_extend([0], [0], [20])
    before = alloc.full_to_swa.clone()
    backup = alloc.backup_state()
    alloc.reserve_extend([0], [20], [40])
    alloc.alloc_extend([1], [0], [5])
    assert not torch.equal(alloc.full_to_swa, before)
    alloc.restore_state(backup)
    assert torch.equal(alloc.full_to_swa, before)


@pytest.mark.cpu_only
def test_a_release_that_fails_leaves_the_mapping():
    alloc, tables = make(page_size=16, window=16, max_context_len=128, pages=20, full_to_swa=True)
    alloc.alloc_extend([0], [0], [40])
    before = alloc.full_to_swa.clone()
    tables.table("c4")[0, 0] = 0
    with pytest.raises(ValueError, match="did something else write it"):
        alloc.free([0])
    assert torch.equal(alloc.full_to_swa, before)
    assert alloc.allocated_len(0) == 40


def test_no_window_reaches_what_a_tail_left_out():
    """Tokens 64 to 93 share a page with the tail of 137: they have slots, but nobody fills them."""
    alloc, tables = make(page_size=64, window=128, max_context_len=512, pages=20, full_to_swa=True)
    alloc.alloc_extend([0], [0], [231], swa_tail=137)
    assert pages_of(tables, "swa", 0).keys() == {1, 2, 3}
    assert not alloc.full_to_swa[slots_of(tables, "full", 0)[64:94]].any()
    alloc.reserve_extend([0], [231], [240])
    assert alloc.shareable_len(0, 240) == 240
    assert alloc.shareable_len(0, 221) == 221, "its window starts at 94, where the tail does"
    assert alloc.shareable_len(0, 220) == 0
    assert alloc.share_prefix([0, 0], [1, 2], [204, 230]).starts == [0, 230]
    assert (alloc.full_to_swa[slots_of(tables, "full", 2)[103:230]] > 0).all()
    assert alloc.allocated_len(1) == 0
    alloc.alloc_extend([1], [0], [10])
    alloc.alloc_extend([1], [10], [20])  # the one that begins from nothing left nothing out
    assert alloc.shareable_len(2, 221) == 221 and alloc.shareable_len(2, 220) == 0, "the new request knows, too"


def test_a_step_whose_window_reaches_before_the_tail_is_refused_even_within_a_page():
    alloc, tables = make(page_size=64, window=128, max_context_len=512, pages=20)
    alloc.alloc_extend([0], [0], [231], swa_tail=127)
    alloc.reserve_extend([0], [231], [232])
    alloc.alloc_extend([1], [0], [231], swa_tail=126)
    before = state_of(alloc, tables)
    with pytest.raises(ValueError, match=r"window \[104, 231\) reaches tokens that a swa_tail has left out"):
        alloc.reserve_extend([1], [231], [232])
    assert state_of(alloc, tables) == before


def test_restore_knows_again_what_a_tail_had_left_out():
    alloc, _ = make(page_size=64, window=30, max_context_len=512, pages=20)
    alloc.alloc_extend([0], [0], [100])
    backup = alloc.backup_state()
    alloc.alloc_extend([0], [100], [300], swa_tail=40)
    assert alloc.shareable_len(0, 289) == 289 and alloc.shareable_len(0, 288) == 100
    alloc.restore_state(backup)
    alloc.alloc_extend([0], [100], [300])
    assert alloc.shareable_len(0, 288) == 288

"""The allocator on small inputs with known answers (docs/spec.md, invariants and allocation)."""

import pickle

import pytest
import torch

import dsv4_npu_ops
from cache.small_cache import POOLS, make, state_of


def test_first_pages_and_dense_groups():
    alloc, tables = make(page_size=4, pages=8, max_context_len=64)
    loc = alloc.alloc_extend([2, 0], [0, 0], [6, 9])
    assert loc.out_full_loc.tolist() == [4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20]
    assert loc.out_c4_loc.tolist() == [4, 8, 9]
    assert loc.out_c128_loc.tolist() == []
    assert tables.c4[2].tolist()[:2] == [4, 0]
    assert tables.c4[0].tolist()[:3] == [8, 9, 0]
    assert {getattr(loc, f"out_{pool}_loc").dtype for pool in POOLS} == {torch.int32}


@pytest.mark.parametrize("batch", [0, 1, 4])
def test_slots_are_int32_whatever_the_batch(batch):
    """Case 15, first sentence."""
    alloc, _ = make()
    reqs = list(range(batch))
    for loc in (
        alloc.alloc_extend(reqs, [0] * batch, [130] * batch),
        alloc.reserve_extend(reqs, [130] * batch, [133] * batch),
        alloc.alloc_decode(reqs, [134] * batch),
    ):
        assert {slots.dtype for slots in loc.in_order()} == {torch.int32}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_rows_of_any_integer_dtype(dtype):
    alloc, _ = make()
    loc = alloc.alloc_extend(torch.tensor([1], dtype=dtype), torch.tensor([0], dtype=dtype), torch.tensor([3]))
    assert loc.out_full_loc.tolist() == [128, 129, 130]


def test_requests_and_lengths_may_be_host_tensors():
    alloc, _ = make()
    loc = alloc.alloc_extend(torch.tensor([1]), torch.tensor([0], dtype=torch.int32), torch.tensor([3]))
    assert loc.out_full_loc.tolist() == [128, 129, 130]
    assert alloc.alloc_decode(torch.tensor([1]), torch.tensor([4])).out_full_loc.tolist() == [131]


def test_prefill_reports_the_holes_that_the_tail_rule_leaves():
    alloc, _ = make()
    loc = alloc.alloc_extend([0], [0], [300])
    assert loc.out_c4_state_loc.tolist() == [0] * 256 + list(range(128, 128 + 44))
    assert loc.out_c128_state_loc.tolist() == [0] * 256 + list(range(128, 128 + 44))
    assert loc.out_swa_loc.tolist() == list(range(128, 428))
    assert alloc.available_pages("c4_state") == 7
    assert alloc.available_pages("swa") == 5


def test_congruence_over_chunks():
    """Case 9: chunks ending at 200 and 260, then a decode to 280."""
    alloc, tables = make(max_context_len=512)
    alloc.alloc_extend([0], [0], [200])
    alloc.alloc_extend([0], [200], [260])
    alloc.reserve_extend([0], [260], [280])
    slots = tables.c4_state[0]
    assert slots[128] % 128 == 0 and slots[256] % 128 == 0
    assert slots[128] != slots[256]
    assert alloc.available_pages("c4_state") == 6
    before = slots[256:280].tolist()
    alloc.evict([0], [280])
    assert alloc.available_pages("c4_state") == 7
    assert slots[128] == 0
    assert slots[256:280].tolist() == before


def test_chunks_that_end_inside_a_page_fill_the_page_that_is_open():
    alloc, tables = make(page_size=16, max_context_len=96)
    alloc.alloc_extend([0], [0], [20])
    alloc.alloc_extend([0], [20], [30])
    assert tables.full[0, :30].tolist() == list(range(16, 46))
    assert alloc.available_pages("full") == 6


def test_a_later_pool_that_fails_leaves_the_earlier_ones_alone():
    """Case 11, first half."""
    alloc, tables = make(c128=0)
    before = state_of(alloc, tables)
    with pytest.raises(dsv4_npu_ops.PoolExhausted, match="pool c128 lacks 1 page: 1 needed, 0 free") as error:
        alloc.alloc_extend([0], [0], [256])
    assert (error.value.pool, error.value.needed_pages, error.value.free_pages) == ("c128", 1, 0)
    assert isinstance(error.value, RuntimeError)
    assert state_of(alloc, tables) == before
    assert alloc.available_pages("full") == alloc.available_pages("swa") == 8


def test_a_decode_that_fails_leaves_the_full_page():
    """Case 11, second half."""
    alloc, tables = make(full=2, swa=1)
    alloc.alloc_extend([0], [0], [128])
    before = state_of(alloc, tables)
    with pytest.raises(dsv4_npu_ops.PoolExhausted, match="pool swa lacks 1 page"):
        alloc.alloc_decode([0], [129])
    assert alloc.available_pages("full") == 1
    assert state_of(alloc, tables) == before


def test_the_first_lacking_pool_in_table_order_is_named_with_the_whole_need():
    alloc, _ = make(swa=2, c4_state=1)
    with pytest.raises(dsv4_npu_ops.PoolExhausted) as error:
        alloc.alloc_extend([0, 1], [0, 0], [256, 256])
    assert (error.value.pool, error.value.needed_pages, error.value.free_pages) == ("swa", 4, 2)
    copy = pickle.loads(pickle.dumps(error.value))
    assert (copy.pool, copy.needed_pages, copy.free_pages) == ("swa", 4, 2)


def test_holes_of_a_state_row_are_not_slots():
    """Case 12: raw 128..199 at slots 128..199; what lies behind has no slot and no page."""
    alloc, tables = make(max_context_len=512)
    alloc.alloc_extend([0], [0], [200])
    assert tables.c4_state[0, 128:200].tolist() == list(range(128, 200))
    assert not tables.c4_state[0, :128].any() and not tables.c4_state[0, 200:].any()
    alloc.alloc_extend([0], [200], [512])
    assert alloc.available_pages("c4_state") == 6
    alloc.evict([0], [512])
    assert alloc.available_pages("c4_state") == 7
    alloc.free([0])
    assert alloc.available_pages("c4_state") == 8
    taken = alloc.alloc_extend([0], [0], [512]).out_c4_state_loc
    assert sorted(set((taken[taken > 0] // 128).tolist())) == [3], "the queue starts at the first page never taken"


def test_free_covers_the_reservation():
    """Case 13: committed 510, allocated 516: 129 groups, two c4 pages."""
    alloc, _ = make()
    alloc.alloc_extend([0], [0], [510])
    assert alloc.available_pages("c4") == 7
    alloc.reserve_extend([0], [510], [516])
    assert alloc.available_pages("c4") == 6
    alloc.free([0])
    assert all(alloc.available_pages(pool) == 8 for pool in POOLS)


def test_a_reserve_beyond_the_table_is_refused():
    """Case 16: the next request's row starts right behind."""
    alloc, tables = make(max_context_len=256)
    alloc.alloc_extend([0], [0], [254])
    before = state_of(alloc, tables)
    with pytest.raises(ValueError, match=r"seq_lens\[0\] is 258, expected at most 256 \(tables.layout.max_context_len\)"):
        alloc.reserve_extend([0], [254], [258])
    assert state_of(alloc, tables) == before
    alloc.reserve_extend([0], [254], [256])


def test_a_failed_reserve_leaves_the_allocated_length():
    """Case 16."""
    alloc, _ = make(full=1)
    alloc.alloc_extend([0], [0], [120])
    with pytest.raises(dsv4_npu_ops.PoolExhausted):
        alloc.reserve_extend([0], [120], [130])
    assert alloc.allocated_len(0) == 120


def test_rejected_slots_are_used_again():
    alloc, _ = make(page_size=16, max_context_len=96)
    alloc.alloc_extend([0], [0], [10])
    first = alloc.reserve_extend([0], [10], [20])
    second = alloc.reserve_extend([0], [12], [24])
    assert second.out_full_loc[:8].tolist() == first.out_full_loc[2:].tolist()
    assert alloc.available_pages("full") == 6
    assert alloc.allocated_len(0) == 24
    alloc.reserve_extend([0], [12], [13])
    assert alloc.allocated_len(0) == 24


def test_freed_pages_go_to_the_back_of_the_queue():
    alloc, _ = make(page_size=1, pages=6, max_context_len=8, c4=None, c128=None, c4_state=None, c128_state=None)
    alloc.alloc_extend([0, 1], [0, 0], [2, 2])
    alloc.free([1, 0])
    loc = alloc.alloc_extend([2], [0], [6])
    assert loc.out_full_loc.tolist() == [5, 6, 3, 4, 1, 2]


def test_a_prefix_of_zero_starts_a_request_even_without_tokens():
    alloc, _ = make()
    loc = alloc.alloc_extend([1], [0], [0])
    assert all(slots.numel() == 0 for slots in loc.in_order())
    assert alloc.allocated_len(1) == 0
    alloc.reserve_extend([1], [0], [2])
    assert alloc.allocated_len(1) == 2


def test_an_empty_call():
    alloc, tables = make()
    before = state_of(alloc, tables)
    assert all(slots.numel() == 0 for slots in alloc.alloc_extend([], [], []).in_order())
    alloc.evict([], [])
    alloc.free([])
    assert state_of(alloc, tables) == before


def test_pools_that_do_not_exist_have_no_entries():
    alloc, tables = make(c128=None, c128_state=None)
    loc = alloc.alloc_extend([0], [0], [256])
    assert loc.out_c128_loc.numel() == loc.out_c128_state_loc.numel() == 0
    assert loc.out_c4_loc.numel() == 64
    assert tables.c128.shape == (4, 0)
    alloc.evict([0], [256])
    alloc.free([0])
    assert alloc.available_pages("c4") == 8
    with pytest.raises(ValueError, match="pool is 'c128', expected one of full, swa, c4, c4_state"):
        alloc.available_pages("c128")


def test_pages_needed():
    """Case 17."""
    layout = dsv4_npu_ops.KVLayout(page_size=128, num_pages=dict.fromkeys(POOLS, 1))
    assert [layout.pages_needed(1000)[pool] for pool in ("full", "c4", "c128")] == [8, 2, 1]
    assert [layout.pages_needed(100)[pool] for pool in ("full", "c4", "c128")] == [1, 1, 0]
    assert layout.num_units("c128", 1000) == 7
    small = dsv4_npu_ops.KVLayout(page_size=32)
    assert small.pages_needed(104)["c4"] == 1 and small.num_units("c4", 104) == 26

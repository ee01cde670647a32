"""The allocator on small inputs with known answers (docs/spec.md, invariants; allocation)."""

import pickle

import pytest
import torch

import dsv4_npu_ops
from cache.small_cache import POOLS, make, slots_of, state_of


def test_first_pages_and_dense_groups():
    alloc, tables = make(page_size=4, pages=8, max_context_len=64)
    loc = alloc.alloc_extend([2, 0], [0, 0], [6, 9])
    assert loc.out_full_loc.tolist() == [4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20]
    assert loc.out_c4_loc.tolist() == [4, 8, 9]
    assert loc.out_c128_loc.tolist() == []
    assert tables.table("c4")[2].tolist() == [1, 0, 0, 0]
    assert tables.table("c4")[0].tolist() == [2, 0, 0, 0]
    assert tables.table("full")[0].tolist() == [3, 4, 5] + [0] * 13
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
    assert tables.table("c4_state")[0].tolist() == [0, 1, 2, 0]
    assert alloc.available_pages("c4_state") == 6
    alloc.evict([0], [280])
    assert alloc.available_pages("c4_state") == 7
    assert tables.table("c4_state")[0].tolist() == [0, 0, 2, 0]


def test_chunks_that_end_inside_a_page_fill_the_page_that_is_open():
    alloc, tables = make(page_size=16, max_context_len=96)
    alloc.alloc_extend([0], [0], [20])
    alloc.alloc_extend([0], [20], [30])
    assert slots_of(tables, "full", 0)[:30] == list(range(16, 46))
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
    """Case 12: raw 128..199 at slots 128..199; what lies before has no slot and no page."""
    alloc, tables = make(max_context_len=512)
    alloc.alloc_extend([0], [0], [200])
    assert tables.table("c4_state")[0].tolist() == [0, 1, 0, 0]
    loc = alloc.alloc_extend([0], [200], [512])
    assert tables.table("c4_state")[0].tolist() == [0, 1, 0, 2]
    # A page is there as a whole: what the chunk skipped has slots as far as the page goes on.
    assert loc.out_c4_state_loc.tolist() == list(range(200, 256)) + [0] * 128 + list(range(256, 384))
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
    with pytest.raises(ValueError, match=r"seq_lens\[0\] is 258, expected at most 256 \(max_context_len\)"):
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
    assert tables.table("c128") is None
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
    small = dsv4_npu_ops.KVLayout(page_size=32, num_pages={"c4": 1})
    assert small.pages_needed(104)["c4"] == 1 and small.num_units("c4", 104) == 26


def test_a_table_entry_is_written_where_a_page_starts():
    """Of 4 tokens that cross into a new page one entry changes, of 4 within a page none."""
    alloc, tables = make(page_size=16, max_context_len=96)
    alloc.alloc_extend([0], [0], [14])
    before = state_of(alloc, tables)[2]
    alloc.reserve_extend([0], [14], [16])
    assert state_of(alloc, tables)[2] == before
    alloc.reserve_extend([0], [16], [20])
    assert tables.table("full")[0].tolist() == [1, 2, 0, 0, 0, 0]


def test_request_tables_of_a_million_tokens():
    """256 requests of 1 M tokens with pages of 128: at most 40 MB of tables."""
    layout = dsv4_npu_ops.KVLayout(
        page_size=128, max_requests=256, max_context_len=1 << 20, num_pages=dict.fromkeys(POOLS, 1)
    )
    tables = dsv4_npu_ops.RequestTables(layout)
    assert sum(table.nbytes for table in tables.op_tables) <= 40e6


def test_page_sizes_by_pool():
    sizes = {"full": 4, "swa": 8, "c4": 2, "c128": 1, "c4_state": 1, "c128_state": 16}
    alloc, _ = make(page_size=sizes, pages=300, max_context_len=300)
    loc = alloc.alloc_extend([0, 1], [0, 0], [9, 130])
    assert loc.out_full_loc[:9].tolist() == [4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert loc.out_swa_loc[:9].tolist() == list(range(8, 17))
    assert loc.out_c4_loc[:2].tolist() == [2, 3] and loc.out_c128_loc.tolist() == [1]
    assert loc.out_c4_state_loc[:9].tolist() == [0] * 4 + [1, 2, 3, 4, 5], "from the group before the open one on"
    assert loc.out_c128_state_loc[9:].tolist() == [0] * 128 + [32, 33]
    taken = {pool: 300 - alloc.available_pages(pool) for pool in POOLS}
    assert taken == {"full": 3 + 33, "swa": 2 + 17, "c4": 1 + 16, "c128": 1, "c4_state": 5 + 6, "c128_state": 1 + 1}


def test_pages_of_a_ring_stand_in_columns_of_their_own():
    alloc, tables = make(page_size=16, window=16, max_context_len=512, pages=40, ring_columns={"swa": 3})
    alloc.alloc_extend([0], [0], [40])
    assert tables.table("swa")[0].tolist() == [1, 2, 3]
    before = state_of(alloc, tables)
    with pytest.raises(
        ValueError,
        match=r"seq_lens\[0\] is 49 for request 0, which then has pages \[0, 4\) of pool swa, expected at most 3",
    ):
        alloc.reserve_extend([0], [40], [49])
    assert state_of(alloc, tables) == before
    alloc.evict([0], [40])
    loc = alloc.reserve_extend([0], [40], [49])
    assert tables.table("swa")[0].tolist() == [4, 2, 3], "page 3 stands in column 0"
    assert loc.out_swa_loc.tolist() == list(range(56, 65))
    with pytest.raises(ValueError, match=r"pages \[1, 5\) of pool swa, expected at most 3"):
        alloc.alloc_extend([0], [49], [70])


def test_what_a_chunk_skips_in_a_ring_has_no_slot_of_another_page():
    """The columns of the pages that the state pools skip hold other pages by then."""
    alloc, tables = make(page_size=16, max_context_len=512, pages=40, ring_columns={"c4_state": 2, "c128_state": 9})
    loc = alloc.alloc_extend([0], [0], [100])
    assert tables.table("c4_state")[0].tolist() == [1, 0]
    assert loc.out_c4_state_loc.tolist() == [0] * 96 + list(range(16, 20))


def test_a_chunk_that_needs_no_state_takes_no_column_of_a_ring():
    """Found by an exploration: a chunk that ends with a group was refused, as if it wrote the state of its pages."""
    layout = dsv4_npu_ops.KVLayout(64, 128, 2, 640, {"full": 20, "c128_state": 8}, ring_columns={"c128_state": 5})
    alloc = dsv4_npu_ops.KVAllocator(layout, dsv4_npu_ops.RequestTables(layout))
    alloc.alloc_extend([1], [0], [60])
    loc = alloc.alloc_extend([1], [60], [384])
    assert (
        loc.out_full_loc.numel() == 324
        and loc.out_c128_state_loc.tolist() == [60 + 64, 61 + 64, 62 + 64, 63 + 64] + [0] * 320
    )
    with pytest.raises(ValueError, match=r"has pages \[0, 7\) of pool c128_state, expected at most 5"):
        alloc.alloc_extend([1], [384], [385])
    alloc.evict([1], [384])
    alloc.alloc_extend([1], [384], [385])

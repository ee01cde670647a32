"""The allocator on small inputs with known answers (docs/spec.md, invariants and allocation)."""

import pickle

import pytest
import torch

import dsv4_npu_ops

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")


def make(page_size=128, pages=8, window=128, max_requests=4, max_context_len=1024, **num_pages):
    """An allocator with `pages` pages in every pool but those named; None leaves a pool out."""
    counts = {pool: num_pages.get(pool, pages) for pool in POOLS}
    layout = dsv4_npu_ops.KVLayout(
        page_size=page_size,
        sliding_window=window,
        max_requests=max_requests,
        max_context_len=max_context_len,
        num_pages={pool: count for pool, count in counts.items() if count is not None},
    )
    tables = dsv4_npu_ops.RequestTables(layout)
    return dsv4_npu_ops.KVAllocator(layout, tables), tables


def state_of(alloc, tables):
    """Everything that a refused call must leave alone."""
    lengths = []
    for req in range(alloc.layout.max_requests):
        try:
            lengths.append(alloc.allocated_len(req))
        except ValueError:
            lengths.append(None)
    pages = [alloc.available_pages(pool) for pool in POOLS if alloc.layout.has_pool(pool)]
    return lengths, pages, [table.tolist() for table in tables.in_order()]


def test_first_pages_and_dense_groups():
    alloc, tables = make(page_size=4, pages=8, max_context_len=64)
    loc = alloc.alloc_extend([2, 0], [0, 0], [6, 9])
    assert loc.out_full_loc.tolist() == [4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19, 20]
    assert loc.out_c4_loc.tolist() == [4, 8, 9]
    assert loc.out_c128_loc.tolist() == []
    assert tables.c4[2].tolist()[:2] == [4, 0]
    assert tables.c4[0].tolist()[:3] == [8, 9, 0]
    assert {getattr(loc, f"out_{pool}_loc").dtype for pool in POOLS} == {torch.int32}


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
    assert tables.c128.shape == (4, 0)
    alloc.evict([0], [256])
    alloc.free([0])
    assert alloc.available_pages("c4") == 8
    with pytest.raises(ValueError, match="pool is 'c128', expected one of full, swa, c4, c4_state"):
        alloc.available_pages("c128")


def running_request():
    """Request 0 has 300 tokens and its windows stand at 256."""
    alloc, tables = make()
    alloc.alloc_extend([0], [0], [300])
    alloc.evict([0], [300])
    return alloc, tables


BAD_CALLS = [
    (lambda a: a.alloc_extend([4], [0], [1]), "alloc_extend: reqs[0] is 4, expected 0 <= request < 4"),
    (lambda a: a.alloc_extend([-1], [0], [1]), "alloc_extend: reqs[0] is -1, expected 0 <= request < 4"),
    (lambda a: a.alloc_extend([1, 1], [0, 0], [1, 1]), "alloc_extend: reqs[1] is 1 again"),
    (lambda a: a.alloc_extend([1], [2], [3]), "alloc_extend: reqs[0] is 1, which was never started"),
    (lambda a: a.alloc_extend([1], [-1], [3]), "alloc_extend: prefix_lens[0] is -1, expected at least 0"),
    (
        lambda a: a.alloc_extend([1, 0], [0, 300], [5, 299]),
        "seq_lens[1] is 299, expected at least prefix_lens[1] = 300",
    ),
    (lambda a: a.alloc_extend([0], [300], [1025]), "seq_lens[0] is 1025, expected at most 1024"),
    (lambda a: a.alloc_extend([0], [301], [302]), "prefix_lens[0] is 301, expected at most 300, the allocated length"),
    (lambda a: a.alloc_extend([0], [200], [302]), "prefix_lens[0] is 200 for request 0, whose step needs pool swa"),
    (lambda a: a.alloc_extend([0], [], [302]), "prefix_lens has 0 entries, expected 1 like reqs"),
    (lambda a: a.alloc_extend([0], [300], []), "seq_lens has 0 entries, expected 1 like reqs"),
    (lambda a: a.alloc_extend([0], [300], [301.5]), "seq_lens is [301.5], expected a list"),
    (lambda a: a.alloc_extend(torch.zeros(1), [0], [1]), "reqs is torch.float32 [1] on cpu, expected a list"),
    (lambda a: a.alloc_extend(torch.tensor([[1]]), [0], [1]), "reqs is torch.int64 [1, 1] on cpu, expected a list"),
    (lambda a: a.reserve_extend([1], [0], [1]), "reserve_extend: reqs[0] is 1, which was never started"),
    (lambda a: a.alloc_decode([0], [0]), "alloc_decode: seq_lens[0] is 0, expected at least 1"),
    (lambda a: a.alloc_decode([1], [1]), "alloc_decode: reqs[0] is 1, which was never started"),
    (lambda a: a.alloc_decode([0], [302]), "alloc_decode: prefix_lens[0] is 301, expected at most 300"),
    (lambda a: a.evict([0], [301]), "evict: committed_lens[0] is 301, expected 0 <= length <= 300"),
    (lambda a: a.evict([0], [-1]), "evict: committed_lens[0] is -1"),
    (lambda a: a.evict([1], [0]), "evict: reqs[0] is 1, which was never started"),
    (lambda a: a.evict([0, 0], [0, 0]), "evict: reqs[1] is 0 again"),
    (lambda a: a.evict([0], []), "evict: committed_lens has 0 entries"),
    (lambda a: a.free([0, 1]), "free: reqs[1] is 1, which was never started"),
    (lambda a: a.free([0, 0]), "free: reqs[1] is 0 again"),
    (lambda a: a.restore_state(1), "restore_state: backup is 1, expected an open backup, but there is none"),
    (lambda a: a.discard_state(1), "discard_state: backup is 1, expected an open backup, but there is none"),
    (lambda a: a.allocated_len(4), "allocated_len: req is 4, expected 0 <= request < 4"),
    (lambda a: a.allocated_len(1), "allocated_len: req is 1, which was never started"),
    (lambda a: a.available_pages("kv"), "available_pages: pool is 'kv', expected one of full, swa"),
]


@pytest.mark.parametrize("call, message", BAD_CALLS, ids=[message for _, message in BAD_CALLS])
def test_bad_calls_say_what_is_wrong_and_change_nothing(call, message):
    alloc, tables = running_request()
    before = state_of(alloc, tables)
    with pytest.raises(ValueError) as error:
        call(alloc)
    assert message in str(error.value)
    assert state_of(alloc, tables) == before


def test_a_step_whose_window_was_never_allocated_is_refused():
    """A chunk keeps only its tail: nothing can step from a prefix that lies before it."""
    alloc, tables = make(swa=None)
    alloc.alloc_extend([0], [0], [300])
    before = state_of(alloc, tables)
    with pytest.raises(ValueError, match=r"reads positions \[0, 130\) of pool c4_state"):
        alloc.reserve_extend([0], [130], [140])
    assert state_of(alloc, tables) == before


def test_tables_of_another_layout():
    alloc, _ = make()
    _, tables = make(page_size=64)
    with pytest.raises(ValueError, match="KVAllocator: tables have"):
        dsv4_npu_ops.KVAllocator(alloc.layout, tables)


def test_pages_needed():
    """Case 17."""
    layout = dsv4_npu_ops.KVLayout(page_size=128, num_pages=dict.fromkeys(POOLS, 1))
    assert [layout.pages_needed(1000)[pool] for pool in ("full", "c4", "c128")] == [8, 2, 1]
    assert [layout.pages_needed(100)[pool] for pool in ("full", "c4", "c128")] == [1, 1, 0]
    assert layout.num_units("c128", 1000) == 7
    small = dsv4_npu_ops.KVLayout(page_size=32)
    assert small.pages_needed(104)["c4"] == 1 and small.num_units("c4", 104) == 26

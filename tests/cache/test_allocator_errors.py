"""What the allocator refuses: the message, and that nothing has changed."""

import pytest
import torch

import dsv4_npu_ops
from cache.small_cache import make, state_of


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
    (
        lambda a: a.alloc_extend([1, 0], [0, 0], [5, 200]),
        "alloc_extend: prefix_lens[1] is 0 for request 0, which is running with 300 allocated tokens, "
        "expected free() of the old request before a new one starts in its row",
    ),
    (lambda a: a.alloc_extend([0], [0], [0]), "prefix_lens[0] is 0 for request 0, which is running"),
    (lambda a: a.alloc_extend([2**70], [0], [1]), f"alloc_extend: reqs[0] is {2**70}, expected an integer of 64 bits"),
    (
        lambda a: a.alloc_extend((n for n in (1, 2**70)), [0], [1]),
        f"alloc_extend: reqs[1] is {2**70}, expected an integer of 64 bits",
    ),
    (lambda a: a.alloc_extend({2**70}, [0], [1]), f"alloc_extend: reqs[0] is {2**70}, expected an integer of 64 bits"),
    (lambda a: a.evict([0], [2**70]), f"evict: committed_lens[0] is {2**70}, expected an integer of 64 bits"),
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

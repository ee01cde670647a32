"""One allocator, several threads, each with requests of its own: every call is one step (docs/spec.md, threads).

The first two tests fail without the allocator's lock; under a thread sanitizer the second one also reports the races.
"""

import sys
import threading
import time

import pytest
import torch

import dsv4_npu_ops
from cache.small_cache import POOLS, make
from dsv4_npu_ops.cache import allocator as allocator_module

THREADS = 4
ROUNDS = 40
DEVICE_HALVES = ("reserve_extend", "share_pages", "release_pages", "map_full_to_swa")


def pages_are_exclusive_and_conserved(alloc, tables):
    """Invariants 2 and 3, read from the tables, where nobody shares."""
    size = alloc.layout.page_size
    for pool in POOLS:
        rows = [set((row[row > 0] // size).tolist()) for row in getattr(tables, pool)]
        owned = set().union(*rows)
        assert len(owned) == sum(map(len, rows)), f"a page of {pool} has two owners"
        assert len(owned) + alloc.available_pages(pool) == alloc.layout.num_pages[pool], pool


CALLS = {
    "alloc_extend": lambda alloc, backup: alloc.alloc_extend([0], [40], [60]),
    "reserve_extend": lambda alloc, backup: alloc.reserve_extend([0], [40], [49]),
    "alloc_decode": lambda alloc, backup: alloc.alloc_decode([0], [41]),
    "share_prefix": lambda alloc, backup: alloc.share_prefix([0], [1], [6]),
    "evict": lambda alloc, backup: alloc.evict([0], [40]),
    "free": lambda alloc, backup: alloc.free([0]),
    "restore_state": lambda alloc, backup: alloc.restore_state(backup),
}


@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_another_thread_waits_for_the_device_half(call, fails, monkeypatch):
    """Others try in the middle of a call, where a switch hurts most, and get their turn afterwards."""
    alloc, tables = make(page_size=4, pages=64, window=8, max_context_len=128, full_to_swa=True)
    backup = alloc.backup_state()
    alloc.alloc_extend([0], [0], [40])
    others: list[threading.Thread] = []

    def beside(action):
        done = threading.Event()

        def run():
            action()
            done.set()

        others.append(threading.Thread(target=run, daemon=True))
        others[-1].start()
        assert not done.wait(0.02), "another thread's call ran inside this one"

    def interrupted(half):
        def run(*arguments, **named):
            if not others:
                beside(lambda: alloc.alloc_extend([2], [0], [30]))
                beside(lambda: alloc.available_pages("swa"))
                if fails:
                    raise RuntimeError("the device is gone")
            return half(*arguments, **named)

        return run

    for name in DEVICE_HALVES:
        monkeypatch.setattr(allocator_module, name, interrupted(getattr(allocator_module, name)))
    if fails:
        with pytest.raises(RuntimeError, match="the device is gone"):
            call(alloc, backup)
    else:
        call(alloc, backup)
    for thread in others:
        thread.join(10)
        assert not thread.is_alive()
    assert len(others) == 2
    assert alloc.allocated_len(2) == 30
    if call is not CALLS["share_prefix"] or fails:
        pages_are_exclusive_and_conserved(alloc, tables)


@pytest.fixture
def switching_all_the_time():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def one_request_after_another(alloc, req, rounds):
    """Prefills, verifies, shares, evicts and ends requests in two rows that no other thread names."""
    for step in range(rounds):
        length = 20 + (7 * step + req) % 40
        loc = alloc.alloc_extend([req], [0], [length])
        assert loc.out_full_loc.unique().numel() == length
        for _ in range(3):
            alloc.reserve_extend([req], [length], [length + 5])
            length += 2
            alloc.evict([req], [length])
            assert alloc.allocated_len(req) == length + 3
        alloc.share_prefix([req], [req + 1], [length])
        alloc.alloc_decode([req + 1], [alloc.allocated_len(req + 1) + 1])
        with pytest.raises(dsv4_npu_ops.PoolExhausted):
            alloc.reserve_extend([req], [length], [1000])
        alloc.free([req, req + 1])


@pytest.mark.usefixtures("switching_all_the_time")
def test_requests_of_many_threads_end_with_full_pools():
    """Invariant 7: what they take and give back at the same time is neither lost nor handed out twice."""
    alloc, tables = make(page_size=4, pages=240, window=8, max_requests=2 * THREADS, max_context_len=1024)
    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def serve(req):
        try:
            start.wait()
            one_request_after_another(alloc, req, ROUNDS)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(2 * i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    assert [alloc.available_pages(pool) for pool in POOLS] == [240] * len(POOLS)
    assert not any(table.any() for table in tables.in_order())
    # Every page is in the queue once: one request that takes them all gets each.
    pages = alloc.alloc_extend([0], [0], [960]).out_full_loc // 4
    assert sorted(set(pages.tolist())) == list(range(1, 241))


def test_two_threads_never_take_the_buffer_of_a_pending_copy(monkeypatch):
    """Both ask while only the older of two copies has happened: one gets its buffer, the other a new one."""

    class Copy:
        def __init__(self, happened):
            self.happened = happened

        def query(self):
            time.sleep(0.02)  # the other thread arrives meanwhile
            return self.happened

    staging, older, newer = dsv4_npu_ops.HostStaging("cpu"), torch.zeros(64), torch.zeros(64)
    staging._ring.extend([(older, Copy(True)), (newer, Copy(False))])
    new = torch.zeros(64)
    monkeypatch.setattr(torch, "empty", lambda *sizes, **options: new)
    taken: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: taken.append(staging._free_buffer(64))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(buffer) for buffer in taken} == {id(older), id(new)}

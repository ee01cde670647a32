"""What crosses to another process, and how: spawned, forked, pickled."""

import copy
import io
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch

import dsv4_npu_ops as d
from modes.serving_round import CONTEXT, POOLS, frequencies, full_slots, host, make, plain, play

TIMEOUT_S = 600  # starting a process takes seconds, on a machine with other work minutes


def forked(action: Callable[[], Any]) -> Any:
    """What an action returns in a forked process; the test fails when that process hangs or dies."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(TIMEOUT_S)
            sender.send(action())
        finally:
            os._exit(0)
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        pytest.fail("the forked process ended without a result")
    finally:
        os.waitpid(child, 0)


def saved_and_loaded(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "deepcopy": copy.deepcopy,
    "torch.save": saved_and_loaded,
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_layout_tables_and_results_can_be_copied(copied):
    tables, allocator = make()
    slots = allocator.alloc_extend([0], [0], [126])
    shared = allocator.share_prefix([0], [1], [120])
    advanced = d.advance_step(tables, host([0]), host([120]), host([2]), host(range(4)), num_draft_tokens=4)
    assert copied(tables.layout) == tables.layout
    verify = d.VerifyStep.empty(tables.layout, 0, 0, 8)
    for rope in (verify.c4_cos, verify.c4_sin, verify.c128_cos, verify.c128_sin):
        rope.zero_()  # what memory held may be no number, which equals nothing
    for value in (slots, shared, advanced, verify):
        assert plain(copied(value)) == plain(value)
        assert type(copied(value)) is type(value)


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_of_tables_serves_and_has_its_own_memory(copied):
    tables, allocator = make()
    allocator.alloc_extend([0], [0], [126])
    other = copied(tables)
    loc = d.flatten_verify_bundle(other, host([0]), host([120]), 4, seq_lens_cpu=host([120]))
    assert loc.out_full_loc.tolist() == full_slots(tables, 0, 120, 124)
    other.table("full").zero_()
    assert full_slots(tables, 0, 120, 124) == loc.out_full_loc.tolist()


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_exhaustion_crosses_with_its_numbers(copied):
    error = copied(d.PoolExhausted("c4", needed_pages=5, free_pages=2))
    assert (error.pool, error.needed_pages, error.free_pages) == ("c4", 5, 2)
    assert str(error) == "pool c4 lacks 3 pages: 5 needed, 2 free"


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_an_allocator_is_refused_by_name(copied):
    """Two of them would hand out the same pages."""
    _, allocator = make()
    with pytest.raises(TypeError, match=r"^KVAllocator: cannot be pickled or copied"):
        copied(allocator)


def _serve_other_process(tables: d.RequestTables, connection: Connection) -> None:
    """A worker: it is told rows and lengths, and answers with the slots that it finds in the tables."""
    torch.set_num_threads(1)
    while (step := connection.recv()) is not None:
        rows, lengths = map(host, step)
        loc = d.flatten_verify_bundle(tables, rows, lengths, 4, seq_lens_cpu=lengths)
        connection.send(loc.out_full_loc.tolist())


def test_a_scheduler_allocates_what_a_worker_reads_from_shared_tables():
    """Tables in shared memory, written by the allocator of one process, read by the steps of another."""
    tables, allocator = make()
    for pool in POOLS:
        tables.table(pool).share_memory_()
    here, there = multiprocessing.get_context("spawn").Pipe()
    worker = torch.multiprocessing.get_context("spawn").Process(
        target=_serve_other_process, args=(tables, there), daemon=True
    )
    worker.start()
    try:
        allocator.alloc_extend([0, 1], [0, 0], [126, 5])
        for lengths in ([126, 5], [129, 7]):
            slots = allocator.reserve_extend([0, 1], lengths, [length + 4 for length in lengths])
            here.send(([0, 1], lengths))
            assert here.poll(TIMEOUT_S), "the worker does not answer"
            assert here.recv() == slots.out_full_loc.tolist()
        here.send(None)
        worker.join(TIMEOUT_S)
        assert worker.exitcode == 0
    finally:
        worker.kill()


def test_a_forked_process_serves_with_one_thread():
    """As torch has it for every operator: OpenMP's threads do not survive a fork."""
    large = host(range(CONTEXT)).repeat(40)
    cos, sin = d.build_rope_tables(frequencies(), torch.float32)
    d.rope_gather(cos, sin, large)  # threads of the parent's loops, if it has several

    def serve() -> Any:
        torch.set_num_threads(1)
        return play(), plain(d.rope_gather(cos, sin, large))

    assert forked(serve) == (play(), plain(d.rope_gather(cos, sin, large)))


def test_a_fork_owns_a_copy_of_the_allocator():
    """Both go on from the same state, each over its own tables: neither sees what the other allocates."""
    tables, allocator = make()
    allocator.alloc_extend([0], [0], [20])

    def extend() -> Any:
        torch.set_num_threads(1)
        return plain(allocator.reserve_extend([0], [20], [40])), allocator.available_pages("full")

    in_child = forked(extend)
    assert allocator.allocated_len(0) == 20
    assert in_child == (plain(allocator.reserve_extend([0], [20], [40])), allocator.available_pages("full"))
    assert full_slots(tables, 0, 39, 40)[0] > 16

"""Loops over several threads, and several threads that call ops. Under a thread sanitizer (make sanitize) they look
for races.

What the allocator promises to threads is in tests/cache/test_allocator_threads.py.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import dsv4_npu_ops as d
from modes.serving_round import CONTEXT, POOLS, ROPE_DIM, frequencies, host, make, plain

THREADS = 4
TABLES, ALLOCATOR = make()
ALLOCATOR.alloc_extend([0, 1], [0, 0], [126, 5])
ALLOCATOR.reserve_extend([0, 1], [126, 5], [130, 9])
COS, SIN = d.build_rope_tables(frequencies(), torch.float32)
# Long enough for a share of every thread: loops below a MiB, or 2**17 entries, stay on one.
MANY = torch.arange(CONTEXT).repeat(400)
WIDE = d.RequestTables(
    d.KVLayout(page_size=1, max_context_len=2**17, max_requests=2, num_pages=dict.fromkeys(("full", "swa", "c4"), 8))
)
for pool in WIDE.pools:
    table = WIDE.table(pool)
    table.copy_(torch.arange(1, table.numel() + 1).view_as(table))
WIDE_ROWS = host([0, 1, 1, 0, 1])


def rotated(dtype: torch.dtype) -> torch.Tensor:
    features = torch.arange(MANY.numel() * 2 * ROPE_DIM).remainder(97).to(dtype).view(-1, 2, ROPE_DIM)
    d.apply_rotary(features, None, *d.rope_gather(COS, SIN, MANY))
    return features


LOOPS: dict[str, Callable[[], Any]] = {
    "rope_gather": lambda: d.rope_gather(COS, SIN, MANY),
    "rope_gather_converted": lambda: d.rope_gather(COS, SIN, MANY, dtype=torch.bfloat16),
    "rope_tables": lambda: d.build_rope_tables(torch.polar(torch.ones(40_000, 32), torch.ones(40_000, 32))),
    "apply_rotary": lambda: rotated(torch.float32),
    "draft_steps": lambda: d.build_draft_steps(
        MANY[:20_000] % 400, COS, SIN, 4, reservation=torch.arange(80_000, dtype=torch.int32), max_context_len=CONTEXT
    ),
    "advance_step": lambda: d.advance_step(
        TABLES,
        host([0, 1]).repeat(500),
        host([126, 5]).repeat(500),
        host([2, 1]).repeat(500),
        host(range(4000)),
        num_draft_tokens=4,
        hidden_states=torch.arange(4000.0 * 1024).view(4000, 1024),
    ),
    "page_tables": lambda: d.build_compress_metadata_decode(WIDE, WIDE_ROWS, host([2**17, 3, 2**16, 0, 2**17])),
}


@pytest.fixture
def several_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_loop_over_threads_writes_what_one_thread_writes(loop, several_threads):
    shared_out = loop()
    torch.set_num_threads(1)
    alone = loop()
    for ours, theirs in zip(tensors(shared_out), tensors(alone), strict=True):
        assert torch.equal(ours, theirs)


def tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    values = result if isinstance(result, tuple) else [getattr(result, name) for name in result.__dataclass_fields__]
    return [value for value in values if value is not None]


def test_steps_of_many_threads_over_the_same_tables_are_those_of_one():
    """Ops hold no state: only tables are shared, and read."""

    def step() -> Any:
        built = d.build_verify_step(TABLES, host([0, 1]), host([126, 5]), 4, COS, SIN)
        rows = d.rope_gather(COS, SIN, built.metadata.positions)
        advanced = d.advance_step(
            TABLES, host([0, 1]), host([126, 5]), host([2, 1]), host(range(8)), num_draft_tokens=4
        )
        return plain((built, rows, advanced))

    expected = step()
    with ThreadPoolExecutor(THREADS) as pool:
        assert all(found == expected for found in pool.map(lambda _: step(), range(40 * THREADS)))


def test_each_thread_writes_rows_of_its_own():
    """write_req_tables of disjoint rows, at the same time."""
    tables, _ = make()
    slots = torch.arange(16, 16 + CONTEXT, dtype=torch.int32)
    barrier = threading.Barrier(tables.layout.max_requests)

    def write(row: int) -> None:
        loc = d.OutCacheLoc(*(slots[: tables.layout.num_units(pool, CONTEXT)] + 1024 * row for pool in POOLS))
        barrier.wait()
        for end in range(4, CONTEXT + 1, 4):
            d.write_req_tables(tables, host([row]), host([0]), host([end]), loc)

    with ThreadPoolExecutor(tables.layout.max_requests) as pool:
        list(pool.map(write, range(tables.layout.max_requests)))
    for row in range(tables.layout.max_requests):
        pages = torch.arange(1, 1 + CONTEXT // 16) + 64 * row
        assert tables.table("full")[row].tolist() == pages.tolist()
        assert tables.table("c4")[row].tolist() == pages[: CONTEXT // 64].tolist()


def test_a_launch_dump_saves_the_calls_of_its_own_thread(tmp_path: Path):
    def calls(folder: Path, count: int) -> None:
        with d.dump_launches(folder):
            for _ in range(count):
                d.rope_gather(COS, SIN, MANY[:3])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(calls, [tmp_path / str(count) for count in range(3)], range(3)))
    assert [len(list((tmp_path / str(count)).iterdir())) for count in range(3)] == [0, 1, 2]

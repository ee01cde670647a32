"""What a user sets for the whole process or thread changes no result: the same round of serving, in every mode."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch

import dsv4_npu_ops as d
from modes.serving_round import play

ROUND = play()


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def deterministic() -> Iterator[None]:
    """Also poisons what is allocated without values, in torch.empty and in C++, so that an unwritten entry shows."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.utils.deterministic.fill_uninitialized_memory
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


MODES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "deterministic": deterministic,
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast_bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast_float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "default_device_meta": lambda: torch.device("meta"),
    "default_dtype_float64": lambda: default_dtype(torch.float64),
    "default_dtype_bfloat16": lambda: default_dtype(torch.bfloat16),
    "one_thread": lambda: threads(1),
    "three_threads": lambda: threads(3),
}


def test_the_round_shares_a_page_and_brings_groups():
    """What the modes are compared over is not empty."""
    assert ROUND["shared"]["starts"] == [127]
    assert len(ROUND["shared"]["copies"]["full"][0][1]) == 1
    assert ROUND["step"]["metadata"]["positions_c128"][1] == [0, 0]
    assert ROUND["step"]["metadata"]["positions_c4"][1][:2] == [124, 4]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_round_of_serving_is_the_same(mode):
    with mode():
        assert play() == ROUND


def test_tables_made_in_inference_mode_serve_outside_and_the_other_way_round():
    """Ops write tables in place; torch forbids some writes to inference tensors, none of which an op needs."""
    layout = d.KVLayout(page_size=4, max_context_len=64, num_pages={"full": 8, "swa": 8})
    with torch.inference_mode():
        inside = d.RequestTables(layout)
        allocator = d.KVAllocator(layout, inside)
        first = allocator.alloc_extend([0], [0], [5])
    second = allocator.alloc_extend([0], [5], [7])
    assert first.out_full_loc.tolist() + second.out_full_loc.tolist() == list(range(4, 11))
    outside = d.RequestTables(layout)
    allocator = d.KVAllocator(layout, outside)
    with torch.inference_mode():
        slots = allocator.alloc_extend([0], [0], [7])
    assert slots.out_full_loc.tolist() == list(range(4, 11))
    assert outside.table("full").tolist() == inside.table("full").tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_never_changes_what_is_rotated(dtype):
    """Neither the dtype of rows nor that of features: an in-place op has no say in it."""
    cos, sin = d.build_rope_tables(torch.polar(torch.ones(4, 2), torch.ones(4, 2)), torch.float32)
    features = torch.ones(3, 1, 4, dtype=dtype)
    with torch.autocast("cpu", dtype=torch.float16):
        rows = d.rope_gather(cos, sin, torch.tensor([1, 2, 3]))
        d.apply_rotary(features, None, *rows)
    assert rows[0].dtype == torch.float32
    assert features.dtype == dtype

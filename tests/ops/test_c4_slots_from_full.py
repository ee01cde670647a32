"""c4_slots_from_full against a comprehension over the slots."""

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st

import dsv4_npu_ops

POISON = -77


def expected(slots):
    return [slot // 4 for slot in slots if slot > 0 and slot % 4 == 3]


def int32(values, device="cpu"):
    return torch.tensor(values, dtype=torch.int32, device=device)


def test_case_8(device):
    slots = int32([131, -1, 0, 135], device)
    assert dsv4_npu_ops.c4_slots_from_full(slots).tolist() == [32, 33]
    out = torch.full((3,), POISON, dtype=torch.int32, device=device)
    assert dsv4_npu_ops.c4_slots_from_full(slots, out=out) is out
    assert out.tolist() == [32, 33, 0]


slot_values = st.one_of(st.integers(-5, 40), st.integers(-(2**31), 2**31 - 1))


@given(slots=st.lists(slot_values, max_size=300), spare=st.integers(0, 70))
def test_equals_the_comprehension(device, slots, spare):
    want = expected(slots)
    assert dsv4_npu_ops.c4_slots_from_full(int32(slots, device)).tolist() == want
    out = torch.full((len(want) + spare,), POISON, dtype=torch.int32, device=device)
    dsv4_npu_ops.c4_slots_from_full(int32(slots, device), out=out)
    assert out.tolist() == want + [0] * spare


@pytest.mark.parametrize("tokens", [64, 4096, 4097, 20000])
def test_long_steps(device, tokens):
    """More than a tile, in several blocks; a request's consecutive slots and scattered ones."""
    generator = torch.Generator().manual_seed(tokens)
    slots = torch.randint(-3, 1 << 20, (tokens,), generator=generator, dtype=torch.int32)
    slots[: tokens // 2] = torch.arange(128, 128 + tokens // 2, dtype=torch.int32)
    want = expected(slots.tolist())
    got = dsv4_npu_ops.c4_slots_from_full(slots.to(device), num_groups=len(want) + 5000)
    assert got.tolist() == want + [0] * 5000


def test_slots_of_an_allocator():
    layout = dsv4_npu_ops.KVLayout(page_size=16, max_context_len=256, num_pages={"full": 20, "c4": 20})
    alloc = dsv4_npu_ops.KVAllocator(layout, dsv4_npu_ops.RequestTables(layout))
    loc = alloc.alloc_extend([2, 0], [0, 0], [37, 150])
    assert dsv4_npu_ops.c4_slots_from_full(loc.out_full_loc).numel() == 37 // 4 + 150 // 4 == loc.out_c4_loc.numel()


@pytest.mark.cpu_only
def test_a_buffer_that_is_too_small_is_not_written():
    out = torch.full((1,), POISON, dtype=torch.int32)
    with pytest.raises(ValueError, match="c4_slots_from_full: out has 1 entries, expected at least 2"):
        dsv4_npu_ops.c4_slots_from_full(int32([131, 135]), out=out)
    assert out.tolist() == [POISON]


@pytest.mark.device_only
def test_a_buffer_of_the_right_size_is_no_error(ascend_sim):
    assert dsv4_npu_ops.c4_slots_from_full(int32([131, 7]), num_groups=2).tolist() == [32, 1]
    assert ascend_sim.take_errors() == []


@pytest.mark.device_only
@pytest.mark.parametrize("tokens", [3, 5000])
def test_more_groups_than_entries_are_reported(ascend_sim, tokens):
    """Also where a second tile brings more, to an output that the first one has filled."""
    out = torch.full((2,), POISON, dtype=torch.int32)
    dsv4_npu_ops.c4_slots_from_full(int32([131, 7] + [135] * (tokens - 2)), out=out)
    assert out.tolist() == [32, 1]
    assert [lane[:4] for lane in ascend_sim.take_errors()] == [[11, 1, 2, min(tokens, 4096)]]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(out_full_loc=torch.zeros(4, dtype=torch.int64)), "out_full_loc has dtype Long, expected Int"),
        (
            dict(out_full_loc=torch.zeros(2, 2, dtype=torch.int32)),
            "out_full_loc has shape [2, 2], expected 1 dimension",
        ),
        (dict(out_full_loc=torch.zeros(8, dtype=torch.int32)[::2]), "out_full_loc has strides [2]"),
        (dict(out=torch.zeros(4)), "out has dtype Float, expected Int"),
        (dict(out=torch.zeros(8, dtype=torch.int32)[::2]), "out has strides [2]"),
        (dict(num_groups=-1), "num_groups is -1, expected at least 0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError) as error:
        dsv4_npu_ops.c4_slots_from_full(**(dict(out_full_loc=int32([3])) | arguments))
    assert f"c4_slots_from_full: {message}" in str(error.value)


def test_the_number_of_groups_is_needed_off_the_host():
    with pytest.raises(ValueError, match="c4_slots_from_full: num_groups is None, expected a number"):
        dsv4_npu_ops.c4_slots_from_full(torch.zeros(4, dtype=torch.int32, device="meta"))


@pytest.mark.one_variant
def test_opcheck():
    ops = torch.ops.dsv4_npu_ops.c4_slots_from_full
    opcheck(ops.default, (int32([131, -1, 0, 135]), 3))
    opcheck(ops.out, (int32([131, -1, 0, 135]),), {"c4_loc": torch.zeros(3, dtype=torch.int32)})

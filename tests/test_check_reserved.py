"""The opt-in check that a step has slots (docs/spec.md, errors)."""

import pytest
import torch

import dsv4_npu_ops as d

pytestmark = pytest.mark.cpu_only

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
ROWS, COS = torch.tensor([2, 0]), torch.ones(512, 4)


def served(checked=True, **pages):
    layout = d.KVLayout(16, 32, 4, 512, dict.fromkeys(POOLS, 60) | pages)
    tables = d.RequestTables(layout)
    tables.check_reserved = checked
    alloc = d.KVAllocator(layout, tables)
    alloc.alloc_extend([0, 2], [0, 0], [126, 40])
    return alloc, tables


LENGTHS, WIDTHS = torch.tensor([40, 126]), torch.tensor([3, 4])
STEPS = {
    "build_verify_step": lambda t: d.build_verify_step(t, ROWS, LENGTHS, WIDTHS, COS, COS),
    "flatten_verify_bundle": lambda t: d.flatten_verify_bundle(t, ROWS, LENGTHS, 3),
    "build_compress_metadata_verify": lambda t: d.build_compress_metadata_verify(t, ROWS, LENGTHS, WIDTHS),
    "build_compress_metadata_decode": lambda t: d.build_compress_metadata_decode(t, ROWS, LENGTHS + 1),
    "build_draft_steps": lambda t: d.build_draft_steps(LENGTHS, COS, COS, 3, tables=t, req_pool_indices=ROWS),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_nobody_reserved_names_row_position_and_call(name):
    alloc, tables = served()
    alloc.reserve_extend([2], [40], [43])
    pool = "swa" if name == "build_draft_steps" else "full"
    end = {"build_compress_metadata_decode": 127, "build_verify_step": 130, "build_compress_metadata_verify": 130}
    message = (
        rf"^{name}: req_pool_indices\[1\] is 0, which has no {pool} slot at position 126, "
        rf"expected reserve_extend\(\[0\], \[126\], \[{end.get(name, 129)}\]\) before the step$"
    )
    with pytest.raises(ValueError, match=message):
        STEPS[name](tables)
    alloc.reserve_extend([0], [126], [130])
    STEPS[name](tables)


@pytest.mark.parametrize("name", STEPS)
def test_nothing_is_looked_up_unless_asked_for(name):
    _, tables = served(checked=False)
    STEPS[name](tables)
    tables.check_reserved = True
    with d.graph_capture():
        STEPS[name](tables)


def test_the_first_pool_and_position_that_lack_a_slot():
    alloc, tables = served()
    alloc.reserve_extend([0, 2], [126, 40], [129, 43])
    tables.c4[0, 31] = 0
    with pytest.raises(ValueError, match="which has no c4 slot at position 124"):
        STEPS["build_verify_step"](tables.select("c4"))
    tables.c128_state[2, 41] = 0
    with pytest.raises(ValueError, match=r"req_pool_indices\[0\] is 2, which has no c128_state slot at position 41"):
        STEPS["build_verify_step"](tables)


def test_a_prefill_keeps_the_tail_of_its_windows_only():
    alloc, tables = served()
    alloc.alloc_extend([1], [0], [300], swa_tail=20)
    metadata = [torch.tensor([1]), torch.tensor([0]), torch.tensor([300])]
    d.build_compress_metadata_prefill(tables, *metadata)
    with pytest.raises(
        ValueError, match=r"no full slot at position 300, expected alloc_extend\(\[1\], \[300\], \[301\]"
    ):
        d.build_compress_metadata_prefill(tables, metadata[0], metadata[2], torch.tensor([301]))


def test_padding_and_ends_of_the_context_need_no_slots():
    alloc, tables = served()
    alloc.alloc_extend([1], [0], [510])
    alloc.reserve_extend([1], [510], [512])
    d.build_draft_steps(torch.tensor([510, 0]), COS, COS, 5, tables=tables, req_pool_indices=torch.tensor([1, 77]))
    d.build_verify_step(tables, torch.tensor([-5, 1]), torch.tensor([0, 510]), 2, COS, COS)
    with pytest.raises(ValueError, match=r"req_pool_indices\[0\] is 9, expected 0 <= index < 4"):
        d.build_verify_step(tables, torch.tensor([9, 1]), torch.tensor([5, 510]), 2, COS, COS)


def test_the_environment_asks_for_it(monkeypatch):
    monkeypatch.setenv("DSV4_CHECK_RESERVED", "1")
    layout = d.KVLayout(num_pages={"full": 2})
    assert d.RequestTables(layout).check_reserved and d.RequestTables(layout).select("full").check_reserved
    monkeypatch.setenv("DSV4_CHECK_RESERVED", "0")
    assert not d.RequestTables(layout).check_reserved

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


LENGTHS, WIDTHS, EXTRA = torch.tensor([40, 126]), torch.tensor([3, 4]), torch.tensor([1, 3])
STEPS = {
    "build_verify_step": lambda t: d.build_verify_step(t, ROWS, LENGTHS, WIDTHS, COS, COS),
    "flatten_verify_bundle": lambda t: d.flatten_verify_bundle(t, ROWS, LENGTHS, 3),
    "build_compress_metadata_verify": lambda t: d.build_compress_metadata_verify(t, ROWS, LENGTHS, WIDTHS),
    "build_compress_metadata_decode": lambda t: d.build_compress_metadata_decode(t, ROWS, LENGTHS + EXTRA),
    "build_step": lambda t: d.build_step(
        t, d.StepRows.mixed(torch.tensor([0, 1, 4]), LENGTHS + 3), d.Step(), req_pool_indices=ROWS
    ),
    "build_draft_steps": lambda t: d.build_draft_steps(LENGTHS, COS, COS, 3, tables=t, req_pool_indices=ROWS),
}


# First new token of the second row, the one behind its last, and the first that has no page.
SPANS = dict.fromkeys(STEPS, (126, 129, 128)) | {
    "build_compress_metadata_decode": (128, 129, 128),
    "build_verify_step": (126, 130, 128),
    "build_compress_metadata_verify": (126, 130, 128),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_nobody_reserved_names_row_position_and_call(name):
    """Pages of 16 tokens: the one that holds 126 and 127 is the request's, the next one is not."""
    alloc, tables = served()
    alloc.reserve_extend([2], [40], [43])
    pool = "swa" if name == "build_draft_steps" else "full"
    begin, end, first = SPANS[name]
    message = (
        rf"^{name}: req_pool_indices\[1\] is 0, which has no {pool} slot at position {first}, "
        rf"expected reserve_extend\(\[0\], \[{begin}\], \[{end}\]\) before the step$"
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
    tables.table("c4")[0, 1] = 0
    with pytest.raises(ValueError, match="which has no c4 slot at position 124"):
        STEPS["build_verify_step"](tables.select("c4"))
    tables.table("c128_state")[2, 2] = 0
    with pytest.raises(ValueError, match=r"req_pool_indices\[0\] is 2, which has no c128_state slot at position 40"):
        STEPS["build_verify_step"](tables.select("c4", "c128_state"))


def engines_tables(full, swa, mapping):
    """Slots of full, pages of swa in a ring of columns, states in rings, and pools by rules."""
    pools = {
        "full": d.SlotTable(full, 16),
        "swa": d.PageTable(swa, 16),
        "c4": d.DividedSlots(),
        "c4_state": d.PageRing(8),
        "c128_state": d.RequestRing(128),
    }
    if mapping is not None:
        pools["swa"] = d.MappedSlots(mapping, 16)
    tables = d.RequestTables.of(pools, max_context_len=512)
    tables.check_reserved = True
    return tables


@pytest.mark.parametrize("mapped", [False, True])
def test_an_engines_tables_are_looked_up_by_their_addresses(mapped):
    full, swa = torch.zeros(4, 512).int(), torch.zeros(4, 3).int()
    full[2, :48], swa[2, 2] = torch.arange(48) + 100, 5
    mapping = torch.zeros(200).int()
    mapping[140:144] = 7
    tables = engines_tables(full, swa, mapping if mapped else None)
    rows, out = d.StepRows.verify(torch.tensor([40]), 4), d.Step()
    d.build_step(tables, rows, out, req_pool_indices=torch.tensor([2]))

    def refused(place, index, position, pool):
        kept = place[index].item()
        place[index] = 0
        message = rf"^build_step: req_pool_indices\[0\] is 2, which has no {pool} slot at position {position}, expected"
        with pytest.raises(ValueError, match=message + " one before the step$"):
            d.build_step(tables, rows, out, req_pool_indices=torch.tensor([2]))
        place[index] = kept

    refused(full, (2, 42), 42, "full")
    if mapped:
        refused(mapping, (143,), 43, "swa")
    else:
        refused(swa, (2, 2), 40, "swa")
    with pytest.raises(ValueError, match=r"^build_step: row 0 has no full slot at position 40, expected one"):
        d.build_step(tables, rows, out)


def test_a_group_lives_in_the_slot_of_its_last_token():
    full = torch.zeros(1, 512).int()
    full[0, :44] = torch.arange(44) + 100
    tables = d.RequestTables.of({"c4": d.DividedSlots(), "full": d.SlotTable(full, 16)}, max_context_len=512)
    tables.check_reserved = True
    d.build_step(tables, d.StepRows.verify(torch.tensor([40]), 4), d.Step())
    full[0, 43] = 0
    tables = tables.select("full", "c4")
    assert tables.check_reserved
    with pytest.raises(ValueError, match="has no full slot at position 43"):
        d.build_step(tables, d.StepRows.verify(torch.tensor([40]), 4), d.Step())


def test_a_prefill_keeps_the_tail_of_its_windows_only():
    alloc, tables = served()
    alloc.alloc_extend([1], [0], [300], swa_tail=20)
    metadata = [torch.tensor([1]), torch.tensor([0]), torch.tensor([300])]
    d.build_compress_metadata_prefill(tables, *metadata)
    with pytest.raises(
        ValueError, match=r"no full slot at position 304, expected alloc_extend\(\[1\], \[300\], \[305\]"
    ):
        d.build_compress_metadata_prefill(tables, metadata[0], metadata[2], torch.tensor([305]))


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

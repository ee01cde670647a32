"""Slots through a mapping, of which a CPU looks up many at a time where they follow each other."""

import pytest
import torch

import dsv4_npu_ops as d

ROWS, CONTEXT, PAGE, RING = 3, 400, 128, 8


def tables_of(slots, mapping, table_dtype, mapping_dtype):
    return d.RequestTables.of(
        {
            "full": d.SlotTable(slots.to(table_dtype), PAGE),
            "swa": d.MappedSlots(mapping.to(mapping_dtype), PAGE),
            "c4_state": d.PageRing(RING),
        },
        max_context_len=CONTEXT,
    )


def wanted(slots, mapping, begin, end, ring):
    """Of one request, by the rule; -5 where there is no slot."""
    found = []
    for token in range(begin, end):
        full = int(slots[token])
        slot = int(mapping[full]) if full > 0 else 0
        found.append(-5 if slot <= 0 else slot // PAGE * RING + slot % RING if ring else slot)
    return found


def run(tables, lengths, widths, dtype=torch.int32):
    rows = d.StepRows.final(torch.tensor(lengths), torch.tensor(widths))
    total = sum(widths)
    out = d.Step(
        out_swa_loc=torch.full((total,), -9, dtype=dtype),
        out_c4_state_loc=torch.full((total,), -9, dtype=torch.int32),
    )
    return d.build_step(tables, rows, out, dummy_slots=dict.fromkeys(("swa", "c4_state"), -5))


def fresh():
    """Three rows of pages that follow no order, each page's slots do; swa pages in another one."""
    pages = torch.randperm(16, generator=torch.Generator().manual_seed(1))[: ROWS * 4].view(ROWS, 4) + 1
    slots = (pages[:, :, None] * PAGE + torch.arange(PAGE)).flatten(1)[:, :CONTEXT]
    order = torch.randperm(17, generator=torch.Generator().manual_seed(2)) + 1
    mapping = (order[:, None] * PAGE + torch.arange(PAGE)).flatten()
    return slots.contiguous(), mapping


SPOILT = {
    "as it is": lambda slots, mapping: None,
    "one full slot is none": lambda slots, mapping: slots[1].__setitem__(210, 0),
    "one full slot is negative": lambda slots, mapping: slots[1].__setitem__(210, -3),
    "one full slot is as negative as can be": lambda slots, mapping: slots[1].__setitem__(210, -(2**31)),
    "full slots are swapped": lambda slots, mapping: slots[1].__setitem__(
        slice(210, 212), slots[1, 210:212].flip(0).clone()
    ),
    "one is not mapped": lambda slots, mapping: mapping.__setitem__(slots[1, 210], 0),
    "one is mapped below": lambda slots, mapping: mapping.__setitem__(slots[1, 210], -1),
    "the smallest that is mapped": lambda slots, mapping: mapping.__setitem__(slots[1, 210], 1),
    "a run begins with none": lambda slots, mapping: slots[1].__setitem__(slice(195, 227), torch.arange(32)),
    "mapped slots are in no order": lambda slots, mapping: mapping.copy_(
        mapping[torch.randperm(len(mapping), generator=torch.Generator().manual_seed(3))]
    ),
}


@pytest.mark.parametrize("lengths, widths", [([260, 395, 300], [31, 200, 32]), ([8, 211, 300], [8, 12, 7])])
@pytest.mark.parametrize("mapping_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("table_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("how", SPOILT)
def test_runs_and_what_breaks_them(how, table_dtype, mapping_dtype, lengths, widths):
    slots, mapping = fresh()
    SPOILT[how](slots, mapping)
    tables = tables_of(slots, mapping, table_dtype, mapping_dtype)
    for dtype in (torch.int32, torch.int64):
        out = run(tables, lengths, widths, dtype)
        for ring, got in ((False, out.out_swa_loc), (True, out.out_c4_state_loc)):
            want = [
                slot
                for row, (length, width) in enumerate(zip(lengths, widths, strict=True))
                for slot in wanted(slots[row], mapping, length - width, length, ring)
            ]
            assert got.tolist() == want, (how, ring)


@pytest.mark.cpu_only
def test_a_mapped_slot_of_more_than_31_bits():
    slots, mapping = fresh()
    mapping[slots[1, 210]] = 2**33 + 5
    out = run(tables_of(slots, mapping, torch.int32, torch.int64), [0, 395, 0], [0, 200, 0], torch.int64)
    assert out.out_swa_loc.tolist() == wanted(slots[1], mapping, 195, 395, False)


@pytest.mark.cpu_only
def test_a_run_up_to_the_last_entry_of_a_mapping_and_one_beyond_it():
    slots, mapping = fresh()
    last = int(slots.max())
    row = int((slots == last).any(1).nonzero())
    end = int((slots[row] == last).nonzero()) + 1
    lengths, widths = [end if i == row else 0 for i in range(ROWS)], [40 if i == row else 0 for i in range(ROWS)]
    out = run(tables_of(slots, mapping[: last + 1], torch.int32, torch.int64), lengths, widths)
    assert out.out_swa_loc.tolist() == wanted(slots[row], mapping, end - 40, end, False)
    with pytest.raises(ValueError, match=rf"mapping of pool swa has {last} entries, expected one for slot {last}"):
        run(tables_of(slots, mapping[:last], torch.int32, torch.int64), lengths, widths)


@pytest.mark.cpu_only
@pytest.mark.parametrize("dtype, beyond", [(torch.int32, 2**31 - 1), (torch.int64, 2**31), (torch.int64, 2**63 - 1)])
@pytest.mark.parametrize("at", [195, 210, 394])
def test_a_slot_far_beyond_a_mapping(dtype, beyond, at):
    slots, mapping = fresh()
    slots[1, at] = beyond
    message = (
        rf"mapping of pool swa has {len(mapping)} entries, expected one for slot {beyond} of pool full \(token {at}"
    )
    with pytest.raises(ValueError, match=message):
        run(tables_of(slots, mapping, dtype, torch.int64), [0, 395, 0], [0, 200, 0])


@pytest.mark.cpu_only
@pytest.mark.parametrize("page, ring", [(8, 256), (8, 8), (128, 8), (1, 1)])
def test_a_ring_longer_than_its_page_may_go_beyond_32_bits(page, ring):
    first = 2**30 + 5
    pools = {
        "full": d.SlotTable(torch.arange(1, 201, dtype=torch.int32)[None], page),
        "swa": d.MappedSlots(torch.arange(first, first + 256), page),
        "c4_state": d.PageRing(ring),
    }
    rows = d.StepRows.final(torch.tensor([190]), torch.tensor([150]))
    out = d.Step(out_c4_state_loc=torch.empty(150, dtype=torch.int64))
    d.build_step(d.RequestTables.of(pools, max_context_len=200), rows, out)
    want = [slot // page * ring + slot % ring for slot in range(first + 41, first + 191)]
    assert out.out_c4_state_loc.tolist() == want


def test_a_ring_in_pages_whose_slots_stand_in_a_table():
    slots, _ = fresh()
    pools = {
        "full": d.SlotTable(slots.int(), PAGE),
        "swa": d.SlotTable(slots.int(), PAGE),
        "c4_state": d.PageRing(RING),
    }
    out = run(d.RequestTables.of(pools, max_context_len=CONTEXT), [260, 395, 300], [31, 200, 32])
    tokens = torch.cat([slots[0, 229:260], slots[1, 195:395], slots[2, 268:300]])
    assert torch.equal(out.out_c4_state_loc, (tokens // PAGE * RING + tokens % RING).int())

"""When the device half of a call fails, the books stay as they were and the same call works later."""

import pytest
import torch
from reference.kv_allocator import POOLS

from dsv4_npu_ops import KVAllocator, KVLayout, RequestTables

PAGE = 4


def make():
    layout = KVLayout(PAGE, 8, 4, 64, dict.fromkeys(POOLS, 12))
    tables = RequestTables(layout)
    alloc = KVAllocator(layout, tables)
    alloc.alloc_extend([0, 1], [0, 0], [14, 6])
    return alloc, tables


def books(alloc):
    return [alloc.available_pages(pool) for pool in POOLS], [alloc.allocated_len(req) for req in (0, 1)]


CALLS = {
    "alloc_extend": lambda alloc, backup: alloc.alloc_extend([0, 1], [14, 6], [20, 9]),
    "reserve_extend": lambda alloc, backup: alloc.reserve_extend([0, 1], [14, 6], [20, 9]),
    "alloc_decode": lambda alloc, backup: alloc.alloc_decode([0, 1], [15, 7]),
    "evict": lambda alloc, backup: alloc.evict([1, 0], [6, 14]),
    "free": lambda alloc, backup: alloc.free([1, 0]),
    "restore_state": lambda alloc, backup: alloc.restore_state(backup),
}


@pytest.mark.cpu_only
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_table_that_lost_a_slot_stops_the_call_and_nothing_changes(call):
    alloc, tables = make()
    backup = alloc.backup_state()
    alloc.reserve_extend([1], [6], [14])
    alloc.reserve_extend([0], [14], [14])
    good = [table.clone() for table in tables.op_tables]
    for request, unit in ((0, 0), (0, 13), (1, 5), (1, 8)):
        tables.table("full")[request, unit // PAGE] = 0
        tables.table("swa")[request, unit // PAGE] = 0
    tables.table("c4_state")[0, 13 // PAGE] = 0
    broken, before = [table.clone() for table in tables.op_tables], books(alloc)
    with pytest.raises(ValueError, match="did something else write it"):
        call(alloc, backup)
    assert books(alloc) == before
    assert all(torch.equal(table, was) for table, was in zip(tables.op_tables, broken, strict=True))

    for table, was in zip(tables.op_tables, good, strict=True):
        table.copy_(was)
    call(alloc, backup)
    if call is not CALLS["restore_state"]:
        alloc.restore_state(backup)
    if call is not CALLS["free"]:
        alloc.free([0, 1])
    assert [alloc.available_pages(pool) for pool in POOLS] == [12] * 6
    assert not any(table.any() for table in tables.op_tables)


@pytest.mark.cpu_only
def test_a_failed_restore_of_an_inner_backup_can_be_tried_again():
    alloc, tables = make()
    at_outer = books(alloc)
    outer = alloc.backup_state()
    alloc.reserve_extend([1], [6], [14])
    at_inner, tables_at_inner = books(alloc), [table.clone() for table in tables.op_tables]
    inner = alloc.backup_state()
    assert alloc.share_prefix([1], [2], [13]).starts == [13]
    alloc.evict([1], [14])
    alloc.reserve_extend([1], [14], [22])
    evicted = [(table == 0) & (was != 0) for table, was in zip(tables.op_tables, tables_at_inner, strict=True)]
    kept, before = int(tables.table("full")[1, 20 // PAGE]), books(alloc)
    tables.table("full")[1, 20 // PAGE] = 0
    with pytest.raises(ValueError, match="did something else write it"):
        alloc.restore_state(inner)
    assert books(alloc) == before
    assert alloc.allocated_len(2) == 13

    tables.table("full")[1, 20 // PAGE] = kept
    alloc.restore_state(inner)
    assert books(alloc)[1] == at_inner[1]
    for table, was, gone in zip(tables.op_tables, tables_at_inner, evicted, strict=True):
        assert torch.equal(table, was.masked_fill(gone, 0))
    alloc.restore_state(outer)
    assert books(alloc)[1] == at_outer[1]
    alloc.free([0, 1])
    assert [alloc.available_pages(pool) for pool in POOLS] == [12] * 6


def test_a_layout_keeps_its_own_page_counts():
    pages = {"full": 2}
    layout = KVLayout(num_pages=pages)
    pages["swa"] = 5
    assert layout.num_pages == {"full": 2}
    alloc = KVAllocator(layout, RequestTables(layout))
    assert alloc.alloc_extend([0], [0], [5]).out_swa_loc.shape == (0,)


def test_construction_does_not_follow_the_default_device():
    with torch.device("meta"):
        alloc, tables = make()
    assert tables.table("full").device.type == "cpu"
    assert alloc.allocated_len(0) == 14


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"page_size": 128.0}, "page_size is 128.0, expected an integer"),
        ({"sliding_window": "128"}, "sliding_window is '128', expected an integer"),
        ({"max_requests": 2.5}, "max_requests is 2.5, expected an integer"),
        ({"num_pages": None}, "num_pages is None, expected a dict by pool"),
        ({"num_pages": {"full": 1.5}}, r"num_pages\['full'\] is 1.5, expected an integer"),
    ],
)
def test_a_layout_takes_integers_only(arguments, message):
    with pytest.raises(ValueError, match=f"KVLayout: {message}"):
        KVLayout(**arguments)


@pytest.mark.parametrize("value", [None, "0", 2**64])
def test_handles_and_ids_are_integers(value):
    alloc, _ = make()
    for call, name in ((alloc.restore_state, "backup"), (alloc.discard_state, "backup"), (alloc.allocated_len, "req")):
        with pytest.raises(ValueError, match=f"{name} is {value!r}, expected an integer"):
            call(value)
    with pytest.raises(ValueError, match="available_pages: pool is"):
        alloc.available_pages([value])


def test_decode_names_its_own_argument():
    alloc, _ = make()
    with pytest.raises(ValueError, match="alloc_decode: seq_lens has 2 entries, expected 1 like reqs"):
        alloc.alloc_decode([0], [15, 16])

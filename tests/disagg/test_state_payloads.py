"""Which pages of a request travel: case 25 of the contract, every length against the oracle, refusals."""

import pytest
import torch
from cache.small_cache import POOLS, make
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import state_payloads as reference

from dsv4_npu_ops import KVAllocator, KVLayout, RequestTables
from dsv4_npu_ops.disagg import StateType, state_payloads
from dsv4_npu_ops.layout import PageTable, SlotTable


def prefilled(page_size, window, length, chunk, occupied=0, ring_columns=None):
    """A cache in which request 1 has committed `length` tokens in chunks, others having taken pages before."""
    sizes = page_size if isinstance(page_size, dict) else dict.fromkeys(POOLS, page_size)
    pages = {pool: 2 * (length + occupied) // sizes[pool] + 4 for pool in POOLS}
    layout = KVLayout(page_size, window, 2, max(length, occupied, 1), pages, ring_columns=ring_columns or {})
    tables = RequestTables(layout)
    alloc = KVAllocator(layout, tables)
    if occupied:
        alloc.alloc_extend([0], [0], [occupied])
    for begin in range(0, length, chunk):
        end = min(begin + chunk, length)
        alloc.alloc_extend([1], [begin], [end])
        alloc.evict([1], [end])
    return tables


def expected(tables, seq_len, prefix_len):
    rows = {pool: tables.table(pool)[1].tolist() for pool in POOLS}
    page_sizes = {pool: tables.page_size_of(pool) for pool in POOLS}
    return reference.state_payloads(rows, seq_len, prefix_len, tables.sliding_window, page_sizes)


def test_types_come_in_one_order():
    assert [kind.value for kind in StateType] == list(reference.TYPES)
    assert list(state_payloads(prefilled(128, 128, 5, 5), 1, 5)) == list(StateType)


def test_state_travels_whole_whatever_prefix_the_receiver_has():
    tables = prefilled(128, 128, 258, 258)
    payload = state_payloads(tables, 1, 258, 256)
    assert payload[StateType.C4_STATE] == tables.table("c4_state")[1, 1:3].tolist(), "of positions 252 to 257"
    assert payload[StateType.C128_STATE] == tables.table("c128_state")[1, 2:3].tolist()
    assert payload[StateType.SWA] == tables.table("swa")[1, 2:3].tolist()
    assert payload[StateType.C4] == payload[StateType.INDEXER] == payload[StateType.C128] == []


def test_without_a_prefix_only_the_live_window_of_swa_travels():
    tables = prefilled(128, 128, 700, 700)
    payload = state_payloads(tables, 1, 700)
    assert payload[StateType.SWA] == tables.table("swa")[1, 4:6].tolist(), "of positions 573 to 699"
    assert len(payload[StateType.C4]) == 2 and payload[StateType.C4] == payload[StateType.INDEXER]
    assert len(payload[StateType.C128]) == 1
    assert payload[StateType.C4_STATE] == tables.table("c4_state")[1, 5:6].tolist()


def test_nothing_is_due_at_a_group_boundary_or_without_tokens():
    assert state_payloads(prefilled(128, 128, 256, 256), 1, 256)[StateType.C128_STATE] == []
    assert not any(state_payloads(prefilled(128, 128, 256, 256), 1, 0).values())
    assert state_payloads(prefilled(128, 128, 3, 3), 1, 3)[StateType.C4] == []


@given(
    page_size=st.sampled_from([1, 4, 16, 64, 128, 256]),
    window=st.sampled_from([1, 3, 16, 128, 200]),
    length=st.integers(1, 600),
    prefix=st.integers(0, 600),
    chunk=st.integers(1, 300),
    occupied=st.integers(0, 200),
)
@settings(max_examples=150)
def test_every_length_prefix_and_chunking_against_the_oracle(page_size, window, length, prefix, chunk, occupied):
    prefix = min(prefix, length)
    tables = prefilled(page_size, window, length, chunk, occupied)
    payload = state_payloads(tables, 1, length, prefix)
    assert {kind.value: pages for kind, pages in payload.items()} == expected(tables, length, prefix)
    assert all(0 not in pages and len(set(pages)) == len(pages) for pages in payload.values())


@given(length=st.integers(1, 600), prefix=st.integers(0, 600), chunk=st.integers(1, 300))
@settings(max_examples=30)
def test_both_ends_list_the_same_number_of_pages(length, prefix, chunk):
    prefix = min(prefix, length)
    sender = state_payloads(prefilled(16, 128, length, chunk), 1, length, prefix)
    receiver = state_payloads(prefilled(16, 128, length, length, occupied=77), 1, length, prefix)
    assert {kind: len(pages) for kind, pages in sender.items()} == {
        kind: len(pages) for kind, pages in receiver.items()
    }


@pytest.mark.parametrize("length", [40, 63, 64, 70, 300])
def test_page_sizes_by_pool_and_rings(length):
    """Pages around the end of a ring come in the order of the tokens."""
    page_size = {"full": 128, "swa": 8, "c4": 32, "c128": 1, "c4_state": 4, "c128_state": 64}
    rings = {"swa": 5, "c4_state": 4, "c128_state": 4}
    tables = prefilled(page_size, 16, length, 7, ring_columns=rings)
    got = {kind.value: pages for kind, pages in state_payloads(tables, 1, length).items()}
    assert got == expected(tables, length, 0) and len(got["swa"]) > 1


def test_more_pages_than_a_ring_has():
    tables = RequestTables.of(
        {"swa": PageTable(torch.ones(2, 3, dtype=torch.int32), 4)}, sliding_window=20, max_context_len=100
    )
    with pytest.raises(ValueError, match="pool swa has 3 columns a request, expected at least 6"):
        state_payloads(tables, 1, 50)


def test_a_pool_that_does_not_exist_has_nothing_to_send():
    alloc, tables = make(c4=None, c4_state=None)
    alloc.alloc_extend([1], [0], [258])
    payload = state_payloads(tables, 1, 258)
    assert payload[StateType.C4] == payload[StateType.INDEXER] == payload[StateType.C4_STATE] == []
    assert len(payload[StateType.C128]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 10), "request is 4, expected 0 to 3"),
        ((-1, 10), "request is -1, expected 0 to 3"),
        ((1, 1025), "seq_len is 1025, expected at most 1024"),
        ((1, 10, 11), "seq_len is 10, expected at least prefix_len, 11"),
        ((1, 10, -1), "prefix_len is -1, expected at least 0"),
        ((1, 700), "request 1 has no page in pool swa for entry 0"),
    ],
)
def test_refusals_name_the_argument(arguments, message):
    alloc, tables = make()
    alloc.alloc_extend([1], [0], [300])
    with pytest.raises(ValueError, match=message):
        state_payloads(tables, *arguments)


def test_an_evicted_page_is_not_sent_as_the_reserved_one():
    alloc, tables = make()
    alloc.alloc_extend([1], [0], [700])
    alloc.evict([1], [700])
    with pytest.raises(ValueError, match="has no page in pool"):
        state_payloads(tables, 1, 300)
    assert torch.count_nonzero(tables.table("swa")[1, :4]) == 0


def test_tables_of_slots_have_no_pages_to_list():
    tables = RequestTables.of({"swa": SlotTable(torch.ones(2, 50, dtype=torch.int32), 4)}, max_context_len=50)
    with pytest.raises(ValueError, match=r"pools\['swa'\] is a SlotTable, expected a PageTable"):
        state_payloads(tables, 1, 50)

"""Which pages of a request travel: case 25 of the contract, every length against the oracle, refusals."""

import pytest
import torch
from cache.small_cache import POOLS, make
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import state_payloads as reference

from dsv4_npu_ops import KVAllocator, KVLayout, RequestTables
from dsv4_npu_ops.disagg import StateType, state_payloads


def prefilled(page_size, window, length, chunk, occupied=0):
    """A cache in which request 1 has committed `length` tokens in chunks, others having taken pages before."""
    pages = {pool: 2 * (length + occupied) // page_size + 4 for pool in POOLS}
    layout = KVLayout(page_size, window, 2, max(length, occupied, 1), pages)
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
    rows = {pool: getattr(tables, pool)[1].tolist() if tables.layout.has_pool(pool) else None for pool in POOLS}
    layout = tables.layout
    return reference.state_payloads(rows, seq_len, prefix_len, layout.sliding_window, layout.page_size)


def test_types_come_in_one_order():
    assert [kind.value for kind in StateType] == list(reference.TYPES)
    assert list(state_payloads(prefilled(128, 128, 5, 5), 1, 5)) == list(StateType)


def test_state_travels_whole_whatever_prefix_the_receiver_has():
    tables = prefilled(128, 128, 258, 258)
    payload = state_payloads(tables, 1, 258, 256)
    page_of = {position: tables.c4_state[1, position].item() // 128 for position in (252, 257)}
    assert payload[StateType.C4_STATE] == [page_of[252], page_of[257]]
    assert page_of[252] != page_of[257]
    assert payload[StateType.C128_STATE] == [tables.c128_state[1, 256].item() // 128]
    assert payload[StateType.SWA] == [tables.swa[1, 256].item() // 128]
    assert payload[StateType.C4] == payload[StateType.INDEXER] == payload[StateType.C128] == []


def test_without_a_prefix_only_the_live_window_of_swa_travels():
    tables = prefilled(128, 128, 700, 700)
    payload = state_payloads(tables, 1, 700)
    assert payload[StateType.SWA] == [tables.swa[1, position].item() // 128 for position in (573, 640)]
    assert len(payload[StateType.C4]) == 2 and payload[StateType.C4] == payload[StateType.INDEXER]
    assert len(payload[StateType.C128]) == 1
    assert payload[StateType.C4_STATE] == [tables.c4_state[1, 699].item() // 128]


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


def test_a_first_page_may_be_filled_from_its_first_needed_row_only():
    """Engines that write the tables themselves need not fill what no compressor reads any more."""
    tables = prefilled(128, 128, 258, 258)
    whole = state_payloads(tables, 1, 258)
    tables.c4_state[1, :252] = 0
    tables.swa[1, :131] = 0
    assert state_payloads(tables, 1, 258) == whole


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
    assert torch.count_nonzero(tables.swa[1, :512]) == 0

"""map_full_to_swa against its oracle."""

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from reference.full_to_swa import map_full_to_swa as oracle
from reference.list_parts import with_parts

from dsv4_npu_ops import KVLayout, RequestTables
from dsv4_npu_ops.layout import PageTable
from dsv4_npu_ops.ops import map_full_to_swa

REQUESTS = 3
COLUMNS = 70
POISON = -7


def make(page_size, num_pages, shuffled, device, columns=COLUMNS, swa_columns=None):
    """Page tables in strided rows whose every unit has a page of its own, and a poisoned mapping. columns: units."""
    pools = {}
    for pool in ("full", "swa"):
        pages = shuffled(list(range(1, num_pages + 1)))
        count = -(-columns // page_size)
        if pool == "swa" and swa_columns is not None:
            count = swa_columns
        wide = torch.zeros(REQUESTS, count + 3, dtype=torch.int32)
        wide[:, :count] = torch.tensor(pages[: REQUESTS * count], dtype=torch.int32).reshape(REQUESTS, count)
        pools[pool] = PageTable(wide.to(device)[:, :count], page_size)
    tables = RequestTables.of(pools, max_context_len=columns)
    return tables, torch.full(((num_pages + 1) * page_size,), POISON, dtype=torch.int64, device=device)


def check_against_oracle(tables, mapping, rows, device):
    full, swa = tables.table("full"), tables.table("swa")
    before = [full.clone(), swa.clone()]
    want = mapping.tolist()
    oracle(full.tolist(), swa.tolist(), want, rows, tables.page_size_of("full"))
    map_full_to_swa(tables, work_list(rows, device), mapping)
    assert mapping.dtype == torch.int64
    assert mapping.tolist() == want
    assert torch.equal(full, before[0]) and torch.equal(swa, before[1])


def work_list(rows, device):
    listed, units = [], 0
    for request, begin, end, source in rows:
        listed.append([request, begin, end, source, 0, 0, 0, units])
        units += end - begin
    listed = with_parts(listed, lambda row: row[2] - row[1])
    return torch.tensor(listed, dtype=torch.int32, device=device).reshape(-1, 8)


@given(page_size=st.sampled_from([1, 2, 4, 8, 64]), data=st.data(), source=st.randoms(use_true_random=False))
def test_equals_the_oracle(device, page_size, data, source):
    num_pages = REQUESTS * -(-COLUMNS // page_size) + data.draw(st.integers(0, 3))
    tables, mapping = make(page_size, num_pages, lambda ids: source.sample(ids, len(ids)), device)
    rows = []
    for request in range(REQUESTS):
        cuts = sorted(data.draw(st.sets(st.integers(0, COLUMNS), max_size=5)))
        rows += [
            (request, begin, end, data.draw(st.integers(0, 1)))
            for begin, end in zip(cuts[::2], cuts[1::2], strict=False)
        ]
    rows = data.draw(st.permutations(rows))
    if rows and data.draw(st.booleans()):
        tables.table("swa")[rows[0][0], rows[0][1] // page_size] = 0  # tokens without a swa slot
    check_against_oracle(tables, mapping, rows, device)


@pytest.mark.parametrize("page_size, swa_columns", [(1, 5), (4, 7), (64, 3)])
def test_a_ring_of_swa_columns(device, page_size, swa_columns):
    """Pages around the end of the ring, and columns that other pages stand in as long as nothing is set."""
    units = 30 * page_size
    tables, mapping = make(page_size, 90, lambda ids: ids[::-1], device, units, swa_columns)
    live = swa_columns * page_size
    rows = [(0, 11 * page_size, 11 * page_size + live, 1), (1, 0, units, 0), (2, 3, 3 + live - page_size, 1)]
    check_against_oracle(tables, mapping, rows, device)


@pytest.mark.parametrize("page_size, columns", [(8192, 9000), (1, 1500), (128, 9000)])
def test_more_than_a_tile(device, page_size, columns):
    """Pages longer than what a device works on at a time, and more pages than that."""
    num_pages = REQUESTS * -(-columns // page_size)
    tables, mapping = make(page_size, num_pages, lambda ids: ids[::-1], device, columns)
    rows = [(0, 3, columns, 1), (2, 0, columns - 1, 1), (1, 1, columns, 0)]
    check_against_oracle(tables, mapping, rows, device)


def test_more_segments_than_a_batch(device):
    """Short ones, so that their number is what ends a batch."""
    tables, mapping = make(4, 3 * 40, lambda ids: ids[::-1], device, columns=160)
    rows = [(request, begin, begin + 2 + request, begin // 4 % 2) for begin in range(0, 160, 4) for request in range(3)]
    check_against_oracle(tables, mapping, rows, device)


@pytest.mark.parametrize("none", [0, -3])
def test_tokens_whose_page_the_swa_table_does_not_hold(device, none):
    tables, mapping = make(4, 3 * 40, lambda ids: ids[::-1], device, columns=160)
    tables.table("swa")[0, 1] = tables.table("swa")[2, 39] = none
    check_against_oracle(tables, mapping, [(0, 2, 13, 1), (2, 150, 160, 1), (1, 0, 8, 1)], device)


def test_the_readme_example():
    layout = KVLayout(page_size=4, max_requests=2, max_context_len=8, num_pages={"full": 7, "swa": 7})
    tables = RequestTables(layout)
    tables.table("full")[1] = torch.tensor([5, 2])
    tables.table("swa")[1] = torch.tensor([3, 7])
    mapping = torch.full((layout.num_slots("full"),), POISON, dtype=torch.int64)
    map_full_to_swa(tables, work_list([(1, 2, 6, 1), (1, 0, 2, 0)], "cpu"), mapping)
    want = [POISON] * 32
    want[20:24], want[8:10] = [0, 0, 14, 15], [28, 29]
    assert mapping.tolist() == want


BAD_SEGMENTS = [
    ((3, 0, 8, 1), "segments[1] is request 3, units [0, 8), source 1, expected a row of the page tables"),
    ((-1, 0, 8, 1), "expected a row of the page tables"),
    ((1, 4, 4, 1), "expected a non-empty interval of units that the tables have columns for"),
    ((1, 0, 25, 1), "expected a non-empty interval of units that the tables have columns for"),
    ((1, 0, 8, 2), "expected source 0 (nothing) or 1 (the swa table)"),
    (
        (2, 0, 24, 1),
        "page 2 of request 2 in pool full is 0, expected a page that the request owns, with all slots below 80",
    ),
    ((1, 8, 9, 1), "page 1 of request 1 in pool full is -1, expected a page"),
    ((1, 16, 17, 0), "page 2 of request 1 in pool full is 10, expected a page that the request owns"),
]


def with_bad_slots():
    tables, mapping = make(8, 9, lambda ids: ids, "cpu", columns=24)
    tables.table("full")[2, 2] = 0
    tables.table("full")[1, 1] = -1
    tables.table("full")[1, 2] = 10
    return tables, mapping


@pytest.mark.cpu_only
@pytest.mark.parametrize("segment, message", BAD_SEGMENTS, ids=[str(s) for s, _ in BAD_SEGMENTS])
def test_bad_segments_write_nothing(segment, message):
    tables, mapping = with_bad_slots()
    with pytest.raises(ValueError) as error:
        map_full_to_swa(tables, work_list([(0, 0, 8, 1), segment], "cpu"), mapping)
    assert "map_full_to_swa: " in str(error.value) and message in str(error.value)
    assert torch.all(mapping == POISON)


@pytest.mark.device_only
@pytest.mark.parametrize("segment, message", BAD_SEGMENTS[:5], ids=[str(s) for s, _ in BAD_SEGMENTS[:5]])
def test_a_bad_segment_is_left_out_and_reported(ascend_sim, segment, message):
    tables, mapping = with_bad_slots()
    map_full_to_swa(tables, work_list([(0, 0, 8, 1), segment, (0, 8, 16, 1)], "cpu"), mapping)
    want = [POISON] * 80
    want[8:24] = range(8, 24)
    assert mapping.tolist() == want
    (lane,) = ascend_sim.take_errors()
    assert lane[0] == 10 and lane[2:4] == [1, segment[0]]


@pytest.mark.device_only
def test_a_page_without_a_full_slot_is_left_out_and_reported(ascend_sim):
    tables, mapping = with_bad_slots()
    map_full_to_swa(tables, work_list([(1, 0, 20, 1)], "cpu"), mapping)
    want = [POISON] * 80
    want[32:40] = range(32, 40)
    assert mapping.tolist() == want
    (lane,) = ascend_sim.take_errors()
    assert lane[:4] == [10, 4, 0, -1]


BAD_ARGUMENTS = [
    (dict(full_to_swa=torch.zeros(80, dtype=torch.int32)), "full_to_swa has dtype Int, expected Long"),
    (dict(full_to_swa=torch.zeros(2, 40, dtype=torch.int64)), "full_to_swa has shape [2, 40], expected 1 dimension"),
    (dict(full_to_swa=torch.zeros(160, dtype=torch.int64)[::2]), "full_to_swa has strides [2]"),
    (dict(segments=torch.zeros(1, 7, dtype=torch.int32)), "segments has shape [1, 7], expected [1, 8]"),
    (dict(segments=torch.zeros(1, 8)), "segments has dtype Float, expected Int"),
    (dict(swa_table=torch.zeros(2, 3, dtype=torch.int32)), "swa_table has 2 rows, expected 3 like full_table"),
    (dict(full_table=torch.zeros(3, 3)), "full_table has dtype Float, expected Int"),
    (dict(num_items=-1), "num_items is -1, expected at least 0"),
    (dict(page_size=12), "page size of pool full is 12, expected a power of two"),
]


@pytest.mark.parametrize("bad, message", BAD_ARGUMENTS, ids=[message for _, message in BAD_ARGUMENTS])
def test_bad_arguments(bad, message):
    tables, mapping = make(8, 9, lambda ids: ids, "cpu", columns=24)
    good = dict(
        full_table=tables.table("full"),
        swa_table=tables.table("swa"),
        segments=work_list([], "cpu"),
        full_to_swa=mapping,
        page_size=8,
        num_items=0,
    )
    with pytest.raises(ValueError) as error:
        torch.ops.dsv4_npu_ops.map_full_to_swa(*(good | bad).values())
    assert f"map_full_to_swa: {message}" in str(error.value)


@pytest.mark.cpu_only
def test_wrong_count_of_items_before_writes_nothing():
    tables, mapping = make(8, 9, lambda ids: ids, "cpu", columns=24)
    segments = work_list([(0, 0, 8, 1), (1, 0, 8, 1)], "cpu")
    segments[1, 7] = 9
    message = r"segments\[1\] says that 9 come before it, expected 8"
    with pytest.raises(ValueError, match=f"map_full_to_swa: {message}"):
        map_full_to_swa(tables, segments, mapping)
    assert torch.all(mapping == POISON)


@pytest.mark.one_variant
def test_opcheck():
    tables, mapping = make(8, 9, lambda ids: ids, "cpu", columns=24)
    opcheck(
        torch.ops.dsv4_npu_ops.map_full_to_swa.default,
        (tables.table("full"), tables.table("swa"), work_list([(0, 3, 20, 1)], "cpu"), mapping, 8),
    )

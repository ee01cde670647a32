"""share_pages, the device half of prefix sharing, against its oracle."""

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from reference.page_segments import share_pages as oracle

from dsv4_npu_ops import KVLayout, RequestTables
from dsv4_npu_ops.ops import share_pages

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
REQUESTS = 4
COLUMNS = 90
NUM_PAGES = [9, 8, 7, 6, 5, 9]


def make(page_size, device, columns=COLUMNS):
    """Tables in strided rows: rows 0 and 1 have a slot everywhere, the others hold what no slot is."""
    layout = KVLayout(page_size=page_size, max_requests=REQUESTS, max_context_len=columns, device=device)
    tables = RequestTables(layout)
    generator = torch.Generator().manual_seed(page_size)
    for pool in POOLS:
        pages = torch.randint(1, 1000, (REQUESTS, -(-columns // page_size), 1), generator=generator)
        wide = (pages * page_size + torch.arange(page_size)).reshape(REQUESTS, -1).to(torch.int32)
        wide = torch.nn.functional.pad(wide[:, :columns], (0, 3), value=-5)
        wide[2:] = -9
        setattr(tables, pool, wide.to(device)[:, :columns])
    rings = [torch.randperm(count, generator=generator).add(1).tolist() for count in NUM_PAGES]
    return tables, rings, torch.tensor([page for ring in rings for page in ring], dtype=torch.int32, device=device)


def work_list(rows, device):
    listed, units = [], 0
    for row in rows:
        listed.append([*row, units])
        units += row[3] - row[2]
    return torch.tensor(listed, dtype=torch.int32, device=device).reshape(-1, 8)


def rows_of(tables):
    return [table.tolist() for table in tables.in_order()]


def check_against_oracle(page_size, device, segments, num_copies, columns=COLUMNS):
    tables, rings, free_pages = make(page_size, device, columns)
    want_rows = rows_of(tables)
    want = oracle(want_rows, rings, segments, num_copies, page_size)
    untouched = free_pages.clone()
    got = share_pages(tables, free_pages, work_list(segments, device), NUM_PAGES, num_copies)
    assert rows_of(tables) == want_rows
    assert [pages.tolist() for pages in got] == list(want)
    assert all(pages.dtype == torch.int32 for pages in got)
    assert torch.equal(free_pages, untouched)


@given(page_size=st.sampled_from([1, 2, 8, 64]), data=st.data())
def test_equals_the_oracle(device, page_size, data):
    segments, num_copies = [], 0
    for pool in range(6):
        taken = data.draw(st.permutations(range(NUM_PAGES[pool])))
        for target in (2, 3):
            source = data.draw(st.integers(0, 1))
            end = data.draw(st.integers(0, COLUMNS))
            whole = end - end % page_size
            begin = data.draw(st.integers(0, whole // page_size)) * page_size
            if begin < whole:
                segments.append([pool, target, begin, whole, source, -1, 0])
            if whole < end:
                segments.append([pool, target, whole, end, source, taken[target], num_copies])
                num_copies += 1
    check_against_oracle(page_size, device, data.draw(st.permutations(segments)), num_copies)


def test_pages_and_prefixes_longer_than_a_piece(device):
    segments = [[0, 2, 0, 16384, 0, -1, 0], [0, 2, 16384, 30000, 0, 3, 1], [1, 3, 0, 9000, 1, 2, 0]]
    check_against_oracle(16384, device, segments, 2, columns=30000)


def test_rows_that_take_over_the_same_slots_in_turns(device):
    """The same slots for the next row, then more of them, another pool, another source, and the same after a copy."""
    segments = [
        [0, 2, 0, 16, 0, -1, 0],
        [0, 3, 0, 16, 0, -1, 0],
        [0, 2, 16, 24, 0, -1, 0],
        [0, 3, 16, 32, 0, -1, 0],
        [1, 2, 16, 32, 0, -1, 0],
        [1, 3, 16, 32, 1, -1, 0],
        [4, 2, 0, 8, 0, -1, 0],
        [4, 2, 8, 12, 0, 1, 0],
        [4, 3, 0, 8, 0, -1, 0],
    ]
    check_against_oracle(8, device, segments, 1)


def test_nothing_to_do(device):
    check_against_oracle(8, device, [], 0)


def test_the_readme_example():
    layout = KVLayout(page_size=4, max_requests=3, max_context_len=8)
    tables = RequestTables(layout)
    for pool in POOLS:
        setattr(tables, pool, torch.zeros(3, 8, dtype=torch.int32))
    tables.full[1, :7] = torch.tensor([20, 21, 22, 23, 12, 13, 14])
    free_pages = torch.tensor([1, 2, 8], dtype=torch.int32)
    segments = work_list([[0, 2, 0, 4, 1, -1, 0], [0, 2, 4, 6, 1, 2, 0]], "cpu")
    source_pages, destination_pages = share_pages(tables, free_pages, segments, [3, 0, 0, 0, 0, 0], 1)
    assert tables.full[2].tolist() == [20, 21, 22, 23, 32, 33, 0, 0]
    assert source_pages.tolist() == [3] and destination_pages.tolist() == [8]


BAD_SEGMENTS = [
    ([6, 2, 0, 8, 0, -1, 0], 1, "expected 0 <= pool < 6"),
    ([0, 4, 0, 8, 0, -1, 0], 2, "expected two different rows of the request tables"),
    ([0, 2, 0, 8, -1, -1, 0], 2, "expected two different rows of the request tables"),
    ([0, 2, 0, 8, 2, -1, 0], 2, "expected two different rows of the request tables"),
    ([0, 2, 8, 8, 0, -1, 0], 3, "expected a non-empty interval of the table's columns"),
    ([0, 2, 88, 91, 0, -1, 0], 3, "expected a non-empty interval of the table's columns"),
    ([0, 2, 8, 17, 0, 3, 0], 4, "expected ring position -1, or the start of one page"),
    ([0, 2, 9, 12, 0, 3, 0], 4, "expected ring position -1, or the start of one page"),
    ([0, 2, 8, 12, 0, 9, 0], 4, "expected ring position -1, or the start of one page"),
    ([0, 2, 8, 12, 0, 3, 2], 4, "expected ring position -1, or the start of one page"),
    ([0, 2, 8, 12, 0, -2, 0], 4, "expected ring position -1, or the start of one page"),
]
IDS = [str(segment) for segment, *_ in BAD_SEGMENTS]


@pytest.mark.cpu_only
@pytest.mark.parametrize("segment, code, message", BAD_SEGMENTS, ids=IDS)
def test_bad_segments_write_nothing(segment, code, message):
    tables, _, free_pages = make(8, "cpu")
    before = rows_of(tables)
    good = [1, 3, 0, 8, 1, -1, 0]
    with pytest.raises(ValueError) as error:
        share_pages(tables, free_pages, work_list([good, segment], "cpu"), NUM_PAGES, 2)
    assert "share_pages: segments[1] is pool " in str(error.value) and message in str(error.value)
    assert rows_of(tables) == before


@pytest.mark.cpu_only
def test_a_page_that_the_source_does_not_have():
    tables, _, free_pages = make(8, "cpu")
    tables.c4[0, 16] = 0
    before = rows_of(tables)
    with pytest.raises(ValueError, match=r"share_pages: c4_table\[0, 16\] is 0, expected the slot of a page"):
        share_pages(tables, free_pages, work_list([[2, 2, 0, 24, 0, -1, 0]], "cpu"), NUM_PAGES, 0)
    assert rows_of(tables) == before


@pytest.mark.device_only
@pytest.mark.parametrize("segment, code, message", BAD_SEGMENTS, ids=IDS)
def test_a_bad_segment_is_left_out_and_reported(ascend_sim, segment, code, message):
    tables, rings, free_pages = make(8, "cpu")
    good = [[1, 3, 0, 8, 1, -1, 0], [2, 3, 0, 5, 0, 6, 1]]
    want = rows_of(tables)
    oracle(want, rings, good, 2, 8)
    share_pages(tables, free_pages, work_list([good[0], segment, good[1]], "cpu"), NUM_PAGES, 2)
    assert rows_of(tables) == want
    assert {tuple(lane[:2]) for lane in ascend_sim.take_errors()} == {(13, code)}


BAD_ARGUMENTS = [
    (dict(segments=torch.zeros(1, 7, dtype=torch.int32)), "segments has shape [1, 7], expected [1, 8]"),
    (dict(free_pages=torch.zeros(9, dtype=torch.int32)), "free_pages has shape [9], expected [44]"),
    (dict(num_pages=[4] * 5), "num_pages has 5 entries, expected 6"),
    (dict(num_copies=-1), "num_copies is -1, expected at least 0"),
    (dict(num_units=-1), "num_units is -1, expected at least 0"),
    (dict(num_copies=1), "num_copies is 1, expected at most 0, the number of segments"),
]


@pytest.mark.parametrize("bad, message", BAD_ARGUMENTS, ids=[message for _, message in BAD_ARGUMENTS])
def test_bad_arguments(bad, message):
    tables, _, free_pages = make(8, "cpu")
    arguments = dict(free_pages=free_pages, segments=work_list([], "cpu"), num_pages=NUM_PAGES, num_copies=0) | bad
    with pytest.raises(ValueError) as error:
        share_pages(tables, **arguments)
    assert f"share_pages: {message}" in str(error.value)


@pytest.mark.one_variant
def test_opcheck():
    tables, _, free_pages = make(8, "cpu")
    segments = work_list([[0, 2, 0, 8, 0, -1, 0], [0, 2, 8, 11, 0, 3, 0]], "cpu")
    opcheck(torch.ops.dsv4_npu_ops.share_pages.default, (*tables.in_order(), free_pages, segments, NUM_PAGES, 1, 8))

"""share_pages, the device half of prefix sharing, against its oracle."""

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from reference.list_parts import with_parts
from reference.page_segments import share_pages as oracle

from dsv4_npu_ops import RequestTables
from dsv4_npu_ops.layout import PageTable
from dsv4_npu_ops.ops import share_pages

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
REQUESTS = 4
COLUMNS = 30  # of windowed pools rings
NUM_PAGES = [9, 8, 7, 6, 5, 9]


def make(device, columns=COLUMNS):
    """Tables in strided rows: rows 0 and 1 have a page everywhere, the others hold what no page is."""
    generator = torch.Generator().manual_seed(columns)
    pools = {}
    for pool in POOLS:
        wide = torch.randint(1, 1000, (REQUESTS, columns + 3), generator=generator, dtype=torch.int32)
        wide[:, columns:] = -5
        wide[2:] = -9
        pools[pool] = PageTable(wide.to(device)[:, :columns], 1)
    tables = RequestTables.of(pools, max_context_len=columns)
    rings = [torch.randperm(count, generator=generator).add(1).tolist() for count in NUM_PAGES]
    return tables, rings, torch.tensor([page for ring in rings for page in ring], dtype=torch.int32, device=device)


def work_list(rows, device):
    listed, items = [], 0
    for row in rows:
        listed.append([*row, items])
        items += row[3] - row[2]
    listed = with_parts(listed, lambda row: row[3] - row[2])
    return torch.tensor(listed, dtype=torch.int32, device=device).reshape(-1, 8)


def rows_of(tables):
    return [table.tolist() for table in tables.op_tables]


def check_against_oracle(device, segments, num_copies, columns=COLUMNS):
    tables, rings, free_pages = make(device, columns)
    want_rows = rows_of(tables)
    want = oracle(want_rows, rings, segments, num_copies)
    untouched = free_pages.clone()
    got = share_pages(tables, free_pages, work_list(segments, device), NUM_PAGES, num_copies)
    assert rows_of(tables) == want_rows
    assert [pages.tolist() for pages in got] == list(want)
    assert all(pages.dtype == torch.int32 for pages in got)
    assert torch.equal(free_pages, untouched)


@given(data=st.data())
def test_equals_the_oracle(device, data):
    segments, num_copies = [], 0
    for pool in range(6):
        taken = data.draw(st.permutations(range(NUM_PAGES[pool])))
        for target in (2, 3):
            source = data.draw(st.integers(0, 1))
            first = data.draw(st.integers(0, 2 * COLUMNS)) if pool in (1, 4, 5) else 0
            begin, end = sorted(data.draw(st.tuples(st.integers(0, COLUMNS - 1), st.integers(0, COLUMNS - 1))))
            if begin < end:
                segments.append([pool, target, first + begin, first + end, source, -1, 0])
            if data.draw(st.booleans()):
                segments.append([pool, target, first + end, first + end + 1, source, taken[target], num_copies])
                num_copies += 1
    check_against_oracle(device, data.draw(st.permutations(segments)), num_copies)


def test_prefixes_longer_than_a_piece(device):
    """Around the end of a ring, too."""
    segments = [[0, 2, 0, 16384, 0, -1, 0], [0, 2, 16384, 16385, 0, 3, 0], [1, 3, 20000, 50000, 1, -1, 0]]
    check_against_oracle(device, segments, 1, columns=30000)


def test_rows_that_take_over_the_same_pages_in_turns(device):
    """The same pages for the next row, then more of them, another pool, another source, and the same after a copy."""
    segments = [
        [0, 2, 0, 2, 0, -1, 0],
        [0, 3, 0, 2, 0, -1, 0],
        [0, 2, 2, 3, 0, -1, 0],
        [0, 3, 2, 4, 0, -1, 0],
        [1, 2, 2, 4, 0, -1, 0],
        [1, 3, 2, 4, 1, -1, 0],
        [4, 2, 0, 1, 0, -1, 0],
        [4, 2, 1, 2, 0, 1, 0],
        [4, 3, 0, 1, 0, -1, 0],
    ]
    check_against_oracle(device, segments, 1)


def test_nothing_to_do(device):
    check_against_oracle(device, [], 0)


def test_the_readme_example():
    table = torch.zeros(3, 2, dtype=torch.int32)
    tables = RequestTables.of({"full": PageTable(table, 4)}, max_context_len=8)
    table[1] = torch.tensor([5, 3])
    free_pages = torch.tensor([1, 2, 8], dtype=torch.int32)
    segments = work_list([[0, 2, 0, 1, 1, -1, 0], [0, 2, 1, 2, 1, 2, 0]], "cpu")
    source_pages, destination_pages = share_pages(tables, free_pages, segments, [3, 0, 0, 0, 0, 0], 1)
    assert table[2].tolist() == [5, 8]
    assert source_pages.tolist() == [3] and destination_pages.tolist() == [8]


BAD_SEGMENTS = [
    ([6, 2, 0, 1, 0, -1, 0], 1, "expected a pool that exists, 0 <= pool < 6"),
    ([0, 4, 0, 1, 0, -1, 0], 2, "expected two different rows of the page tables"),
    ([0, 2, 0, 1, -1, -1, 0], 2, "expected two different rows of the page tables"),
    ([0, 2, 0, 1, 2, -1, 0], 2, "expected two different rows of the page tables"),
    ([0, 2, 8, 8, 0, -1, 0], 3, "expected a non-empty interval of pages that the table has columns for"),
    ([0, 2, 28, 31, 0, -1, 0], 3, "expected a non-empty interval of pages that the table has columns for"),
    ([1, 2, 28, 59, 0, -1, 0], 3, "expected a non-empty interval of pages that the table has columns for"),
    ([0, 2, 8, 10, 0, 3, 0], 4, "expected ring position -1, or one page, a position in the ring"),
    ([0, 2, 8, 9, 0, 9, 0], 4, "expected ring position -1, or one page, a position in the ring"),
    ([0, 2, 8, 9, 0, 3, 2], 4, "expected ring position -1, or one page, a position in the ring"),
    ([0, 2, 8, 9, 0, -2, 0], 4, "expected ring position -1, or one page, a position in the ring"),
]
IDS = [str(segment) for segment, *_ in BAD_SEGMENTS]


@pytest.mark.cpu_only
@pytest.mark.parametrize("segment, code, message", BAD_SEGMENTS, ids=IDS)
def test_bad_segments_write_nothing(segment, code, message):
    tables, _, free_pages = make("cpu")
    before = rows_of(tables)
    good = [1, 3, 0, 1, 1, -1, 0]
    with pytest.raises(ValueError) as error:
        share_pages(tables, free_pages, work_list([good, segment], "cpu"), NUM_PAGES, 2)
    assert "share_pages: segments[1] is pool " in str(error.value) and message in str(error.value)
    assert rows_of(tables) == before


@pytest.mark.cpu_only
def test_a_page_that_the_source_does_not_have():
    tables, _, free_pages = make("cpu")
    tables.table("c4")[0, 2] = 0
    before = rows_of(tables)
    with pytest.raises(ValueError, match="share_pages: page 2 of request 0 in pool c4 is 0, expected a page that"):
        share_pages(tables, free_pages, work_list([[2, 2, 0, 3, 0, -1, 0]], "cpu"), NUM_PAGES, 0)
    assert rows_of(tables) == before


@pytest.mark.device_only
@pytest.mark.parametrize("segment, code, message", BAD_SEGMENTS, ids=IDS)
def test_a_bad_segment_is_left_out_and_reported(ascend_sim, segment, code, message):
    tables, rings, free_pages = make("cpu")
    good = [[1, 3, 0, 8, 1, -1, 0], [2, 3, 0, 1, 0, 6, 1]]
    want = rows_of(tables)
    oracle(want, rings, good, 2)
    share_pages(tables, free_pages, work_list([good[0], segment, good[1]], "cpu"), NUM_PAGES, 2)
    assert rows_of(tables) == want
    assert {tuple(lane[:2]) for lane in ascend_sim.take_errors()} == {(13, code)}


BAD_ARGUMENTS = [
    (dict(segments=torch.zeros(1, 7, dtype=torch.int32)), "segments has shape [1, 7], expected [1, 8]"),
    (dict(free_pages=torch.zeros(9, dtype=torch.int32)), "free_pages has shape [9], expected [44]"),
    (dict(num_pages=[4] * 5), "num_pages has 5 entries, expected 6"),
    (dict(num_copies=-1), "num_copies is -1, expected at least 0"),
    (dict(num_items=-1), "num_items is -1, expected at least 0"),
    (dict(num_copies=1), "num_copies is 1, expected at most 0, the number of segments"),
]


@pytest.mark.parametrize("bad, message", BAD_ARGUMENTS, ids=[message for _, message in BAD_ARGUMENTS])
def test_bad_arguments(bad, message):
    tables, _, free_pages = make("cpu")
    arguments = dict(free_pages=free_pages, segments=work_list([], "cpu"), num_pages=NUM_PAGES, num_copies=0) | bad
    with pytest.raises(ValueError) as error:
        share_pages(tables, **arguments)
    assert f"share_pages: {message}" in str(error.value)


@pytest.mark.one_variant
def test_opcheck():
    tables, _, free_pages = make("cpu")
    segments = work_list([[0, 2, 0, 8, 0, -1, 0], [0, 2, 8, 9, 0, 3, 0]], "cpu")
    page_tables, page_sizes = tables.page_tables
    opcheck(torch.ops.dsv4_npu_ops.share_pages.default, (page_tables, free_pages, segments, NUM_PAGES, 1, page_sizes))

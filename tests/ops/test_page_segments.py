"""reserve_extend and release_pages, the device halves of the allocator, against their oracles."""

import copy
import random

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from reference import page_segments as oracle

from dsv4_npu_ops import KVLayout, RequestTables
from dsv4_npu_ops.ops import release_pages, reserve_extend

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
COLUMNS = 40
REQUESTS = 3
POISON = 1 << 20


class Device:
    """Tables with poison in strided rows, and rings of shuffled page ids, on lists and on a device alike."""

    def __init__(self, device, page_size, num_pages, shuffle, requests=REQUESTS):
        layout = KVLayout(page_size=page_size, max_requests=requests, max_context_len=COLUMNS, device=device)
        self.device = device
        self.tables = RequestTables(layout)
        for pool in POOLS:
            wide = torch.full((requests, COLUMNS + 2), POISON, dtype=torch.int32, device=device)
            setattr(self.tables, pool, wide[:, :COLUMNS])
        self.num_pages = num_pages
        self.rings = [list(range(1, count + 1)) for count in num_pages]
        for ring in self.rings:
            shuffle(ring)

    def free_pages(self):
        ids = [page for ring in self.rings for page in ring]
        return torch.tensor(ids, dtype=torch.int32, device=self.device)

    def rows(self):
        return [table.tolist() for table in self.tables.in_order()]

    def segments(self, rows):
        """The work list of the rows' first seven fields; the eighth counts the units before."""
        listed, units = [], 0
        for row in rows:
            listed.append([*(row + [0] * 7)[:7], units])
            units += row[3] - row[2]
        return torch.tensor(listed, dtype=torch.int32, device=self.device).reshape(-1, 8)


@st.composite
def work(draw, page_size):
    """Disjoint intervals of units: (pool, request, begin, end)."""
    intervals = []
    for pool in range(6):
        for request in range(REQUESTS):
            cuts = sorted(draw(st.sets(st.integers(0, COLUMNS), max_size=4)))
            intervals += [(pool, request, begin, end) for begin, end in zip(cuts[::2], cuts[1::2], strict=False)]
    return draw(st.permutations(intervals))


@given(page_size=st.sampled_from([1, 2, 8, 64]), data=st.data(), source=st.randoms(use_true_random=False))
def test_reserve_extend_equals_the_oracle(device, page_size, data, source):
    num_pages = [data.draw(st.integers(40, 50)) for _ in POOLS]
    state = Device(device, page_size, num_pages, source.shuffle)
    segments, num_slots, joined = [], [0] * 6, {}
    for pool, request, begin, end in data.draw(work(page_size)):
        kind = data.draw(st.sampled_from([oracle.KEEP, oracle.JOIN, oracle.TAKE]))
        if kind == oracle.TAKE and begin % page_size:
            kind = oracle.JOIN
        if kind == oracle.JOIN:
            end = min(end, begin - begin % page_size + page_size)
            if begin % page_size == 0:
                kind = oracle.KEEP
            else:
                joined[pool, request, begin - 1] = source.randrange(1, 99) * page_size + (begin - 1) % page_size
        position = source.randrange(num_pages[pool])
        segments.append([pool, request, begin, end, kind, position, num_slots[pool], 0])
        num_slots[pool] += end - begin
    # The unit before a joined page has a slot that no other segment writes.
    segments = [s for s in segments if not any((s[0], s[1], unit) in joined for unit in range(s[2], s[3]))]
    num_slots = [max([s[6] + s[3] - s[2] for s in segments if s[0] == pool], default=0) for pool in range(6)]
    for (pool, request, unit), slot in joined.items():
        state.tables.in_order()[pool][request, unit] = slot
    want_rows = state.rows()
    want = oracle.reserve_extend(want_rows, state.rings, segments, num_slots, page_size)
    free_pages = state.free_pages()
    untouched = free_pages.clone()

    got = reserve_extend(state.tables, free_pages, state.segments(segments), num_pages, num_slots)
    assert state.rows() == want_rows
    assert torch.equal(free_pages, untouched)
    for slots, wanted in zip(got.in_order(), want, strict=True):
        assert slots.dtype == torch.int32 and slots.shape == (len(wanted),)
        assert all(w is None or slot == w for slot, w in zip(slots.tolist(), wanted, strict=True))


@pytest.mark.parametrize("count", [270, 269, 2100])
def test_reserve_extend_of_many_segments(device, count):
    """More than a core works on at a time, of all kinds in turn; half pages, so that joined ones follow a kept half.
    A search for a block's first segment cuts one of the lists into equal parts, and not the others. Of the longest, two
    blocks have more segments each than they hold."""
    requests = -(-count // 90)
    state = Device(device, 4, [COLUMNS] * 6, random.Random(1).shuffle, requests)
    segments, num_slots = [], [0] * 6
    for pool in range(6):
        for request in range(requests):
            row = torch.arange(64, 64 + COLUMNS, dtype=torch.int32)
            row[2::4] = row[3::4] = POISON
            state.tables.in_order()[pool][request] = row.to(device)
            for page in range(COLUMNS // 4):
                unit, take = 4 * page, (page + request) % 2 == 1
                kinds = [(0, 4, oracle.TAKE)] if take else [(0, 2, oracle.KEEP), (2, 4, oracle.JOIN)]
                for begin, end, kind in kinds[: count - len(segments)]:
                    segments.append([pool, request, unit + begin, unit + end, kind, page, num_slots[pool], 0])
                    num_slots[pool] += end - begin
    assert len(segments) == count
    want_rows = state.rows()
    want = oracle.reserve_extend(want_rows, state.rings, segments, num_slots, 4)
    got = reserve_extend(state.tables, state.free_pages(), state.segments(segments), state.num_pages, num_slots)
    assert state.rows() == want_rows
    assert [slots.tolist() for slots in got.in_order()] == want


@given(page_size=st.sampled_from([1, 2, 8, 64]), data=st.data(), source=st.randoms(use_true_random=False))
def test_release_pages_equals_the_oracle(device, page_size, data, source):
    num_pages = [COLUMNS * REQUESTS] * 6
    state = Device(device, page_size, num_pages, source.shuffle)
    segments, given_back = [], [source.randrange(count) for count in num_pages]
    for pool, request, begin, end in data.draw(work(page_size)):
        position = -1
        if begin % page_size == 0 and data.draw(st.booleans()):
            position = given_back[pool] % num_pages[pool]
            given_back[pool] += -(-(end - begin) // page_size)
            for unit in range(begin, end, page_size):
                state.tables.in_order()[pool][request, unit] = source.randrange(1, 99) * page_size
        segments.append([pool, request, begin, end, position, 0, 0, 0])
    want_rows, want_rings = state.rows(), copy.deepcopy(state.rings)
    oracle.release_pages(want_rows, want_rings, segments, page_size)
    free_pages = state.free_pages()

    release_pages(state.tables, free_pages, state.segments(segments), num_pages)
    assert state.rows() == want_rows
    assert free_pages.tolist() == [page for ring in want_rings for page in ring]


def device_with_one_page():
    """Page size 8; request 1 holds page 3 of `full` for its first 8 units."""
    state = Device(torch.device("cpu"), 8, [4, 4, 4, 4, 4, 0], lambda ring: None)
    state.tables.full[1, :8] = torch.arange(24, 32, dtype=torch.int32)
    return state


BAD_RESERVE_SEGMENTS = [
    ([6, 0, 0, 8, 2, 0, 0, 0], "expected 0 <= pool < 6"),
    ([0, 3, 0, 8, 2, 0, 0, 0], "expected a row of the request tables"),
    ([0, -1, 0, 8, 2, 0, 0, 0], "expected a row of the request tables"),
    ([0, 0, 32, 41, 2, 0, 0, 0], "expected a non-empty interval of the table's columns"),
    ([0, 0, 8, 8, 2, 0, 0, 0], "expected a non-empty interval of the table's columns"),
    ([0, 0, 0, 8, 2, 0, 3, 0], "expected an interval of the pool's output"),
    ([0, 0, 0, 8, 2, 0, -1, 0], "expected an interval of the pool's output"),
    ([0, 0, 0, 8, 3, 0, 0, 0], "expected source 0 (keep), 1 (join a page) or 2 (take pages)"),
    ([0, 0, 0, 8, 2, 4, 0, 0], "whole pages in the ring (2)"),
    ([0, 0, 4, 8, 2, 0, 0, 0], "whole pages in the ring (2)"),
    ([5, 0, 0, 8, 2, 0, 0, 0], "whole pages in the ring (2)"),
    ([0, 1, 8, 9, 1, 0, 0, 0], "an interval of one started page (source 1)"),
    ([0, 1, 7, 9, 1, 0, 0, 0], "an interval of one started page (source 1)"),
    ([1, 1, 4, 5, 1, 0, 0, 0], "swa_table[1, 3] is 0, expected the slot of a page that the request owns"),
]


@pytest.mark.cpu_only
@pytest.mark.parametrize("segment, message", BAD_RESERVE_SEGMENTS, ids=[str(s) for s, _ in BAD_RESERVE_SEGMENTS])
def test_bad_reserve_segments_write_nothing(segment, message):
    state = device_with_one_page()
    state.tables.swa[1] = 0
    before = state.rows()
    with pytest.raises(ValueError) as error:
        reserve_extend(
            state.tables,
            state.free_pages(),
            state.segments([[0, 2, 0, 8, 2, 0, 0, 0], segment]),
            state.num_pages,
            [10] * 6,
        )
    assert "reserve_extend: " in str(error.value) and message in str(error.value)
    assert state.rows() == before


BAD_RELEASE_SEGMENTS = [
    ([-1, 0, 0, 8, -1, 0, 0, 0], "expected 0 <= pool < 6"),
    ([0, 3, 0, 8, -1, 0, 0, 0], "expected a row of the request tables"),
    ([0, 0, 0, 41, -1, 0, 0, 0], "expected a non-empty interval of the table's columns"),
    ([0, 1, 0, 8, 4, 0, 0, 0], "expected ring position -1, or whole pages and a position in the ring"),
    ([0, 1, 4, 8, 0, 0, 0, 0], "expected ring position -1, or whole pages and a position in the ring"),
    ([0, 1, 0, 40, 0, 0, 0, 0], "expected ring position -1, or whole pages and a position in the ring"),
    ([1, 1, 0, 8, 0, 0, 0, 0], "swa_table[1, 0] is 0, expected the slot of a page that the request owns"),
]


@pytest.mark.cpu_only
@pytest.mark.parametrize("segment, message", BAD_RELEASE_SEGMENTS, ids=[str(s) for s, _ in BAD_RELEASE_SEGMENTS])
def test_bad_release_segments_write_nothing(segment, message):
    state = device_with_one_page()
    state.tables.swa[1] = 0
    before = state.rows()
    free_pages = state.free_pages()
    untouched = free_pages.clone()
    with pytest.raises(ValueError) as error:
        release_pages(state.tables, free_pages, state.segments([[0, 1, 0, 8, 1, 0, 0, 0], segment]), state.num_pages)
    assert "release_pages: " in str(error.value) and message in str(error.value)
    assert state.rows() == before
    assert torch.equal(free_pages, untouched)


BAD_ARGUMENTS = [
    (dict(segments=torch.zeros(1, 7, dtype=torch.int32)), "segments has shape [1, 7], expected [1, 8]"),
    (dict(segments=torch.zeros(8, dtype=torch.int32)), "segments has shape [8], expected 2 dimensions"),
    (dict(segments=torch.zeros(1, 8)), "segments has dtype Float, expected Int"),
    (dict(segments=torch.zeros(2, 16, dtype=torch.int32)[:, ::2]), "segments has strides [16, 2]"),
    (dict(free_pages=torch.zeros(19, dtype=torch.int32)), "free_pages has shape [19], expected [20]"),
    (dict(free_pages=torch.zeros(20)), "free_pages has dtype Float, expected Int"),
    (dict(free_pages=torch.zeros(40, dtype=torch.int32)[::2]), "free_pages has strides [2]"),
    (dict(num_pages=[4] * 5), "num_pages has 5 entries, expected 6"),
    (dict(num_pages=[4, 4, 4, 4, 4, -1]), "num_pages is [4, 4, 4, 4, 4, -1], expected counts of 0 or more"),
]


@pytest.mark.parametrize("bad, message", BAD_ARGUMENTS, ids=[message for _, message in BAD_ARGUMENTS])
@pytest.mark.parametrize("op", ["reserve_extend", "release_pages"])
def test_bad_arguments(op, bad, message):
    state = device_with_one_page()
    arguments = dict(free_pages=state.free_pages(), segments=state.segments([]), num_pages=state.num_pages) | bad
    with pytest.raises(ValueError) as error:
        if op == "reserve_extend":
            reserve_extend(state.tables, **arguments, num_slots=[0] * 6)
        else:
            release_pages(state.tables, **arguments)
    assert f"{op}: {message}" in str(error.value)


def test_a_negative_number_of_units():
    state = device_with_one_page()
    with pytest.raises(ValueError, match="release_pages: num_units is -1, expected at least 0"):
        release_pages(state.tables, state.free_pages(), state.segments([]), state.num_pages, num_units=-1)


@pytest.mark.cpu_only
def test_wrong_count_of_units_before_writes_nothing():
    state = device_with_one_page()
    before = state.rows()
    segments = state.segments([[0, 2, 0, 8, 2, 0, 0], [0, 0, 0, 8, 2, 1, 0]])
    segments[1, 7] = 9
    message = r"segments\[1\] says that 9 units come before it, expected 8"
    with pytest.raises(ValueError, match=f"reserve_extend: {message}"):
        reserve_extend(state.tables, state.free_pages(), segments, state.num_pages, [16] * 6)
    with pytest.raises(ValueError, match=f"release_pages: {message}"):
        release_pages(state.tables, state.free_pages(), segments, state.num_pages)
    assert state.rows() == before


@pytest.mark.parametrize("num_slots", [[0] * 5, [0, 0, 0, 0, 0, -1]])
def test_bad_output_sizes(num_slots):
    state = device_with_one_page()
    with pytest.raises(ValueError, match="reserve_extend: num_slots"):
        reserve_extend(state.tables, state.free_pages(), state.segments([]), state.num_pages, num_slots)


@pytest.mark.parametrize("op", ["reserve_extend", "release_pages"])
def test_page_size_that_is_no_power_of_two(op):
    state = device_with_one_page()
    state.tables.page_size = 12
    with pytest.raises(ValueError, match=f"{op}: page_size is 12, expected a power of two"):
        if op == "reserve_extend":
            reserve_extend(state.tables, state.free_pages(), state.segments([]), state.num_pages, [0] * 6)
        else:
            release_pages(state.tables, state.free_pages(), state.segments([]), state.num_pages)


def test_opcheck():
    state = device_with_one_page()
    taken = state.segments([[0, 0, 0, 8, 2, 1, 0, 0]])
    opcheck(
        torch.ops.dsv4_npu_ops.reserve_extend.default,
        (*state.tables.in_order(), state.free_pages(), taken, state.num_pages, [8, 0, 0, 0, 0, 0], 8),
    )
    given_back = state.segments([[0, 1, 0, 8, 2, 0, 0, 0]])
    opcheck(
        torch.ops.dsv4_npu_ops.release_pages.default,
        (*state.tables.in_order(), state.free_pages(), given_back, state.num_pages, 8),
    )


@pytest.mark.device_only
def test_a_bad_reserve_segment_is_left_out_and_reported(ascend_sim):
    state = device_with_one_page()
    before = state.rows()
    segments = state.segments([[0, 2, 0, 8, 2, 0, 0], [0, 3, 0, 8, 2, 1, 8], [0, 1, 8, 12, 2, 2, 16]])
    got = reserve_extend(state.tables, state.free_pages(), segments, state.num_pages, [20, 0, 0, 0, 0, 0])
    before[0][2][:8], before[0][1][8:12] = range(8, 16), range(24, 28)
    assert state.rows() == before
    assert got.out_full_loc[:8].tolist() == list(range(8, 16))
    assert got.out_full_loc[16:].tolist() == list(range(24, 28))
    assert ascend_sim.take_errors() == [[7, 2, 1, 3, 0, 0, 0, 0]]


@pytest.mark.device_only
def test_a_bad_release_segment_is_left_out_and_reported(ascend_sim):
    state = device_with_one_page()
    before = state.rows()
    free_pages = state.free_pages()
    segments = state.segments([[0, -1, 0, 8, 0], [0, 1, 0, 8, 1], [0, 2, 0, 41, -1]])
    release_pages(state.tables, free_pages, segments, state.num_pages)
    before[0][1][:8] = [0] * 8
    assert state.rows() == before
    assert free_pages[:4].tolist() == [1, 3, 3, 4]
    assert [lane[:2] for lane in ascend_sim.take_errors()] == [[8, 2]]

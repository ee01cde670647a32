"""reserve_extend and release_pages, the device halves of the allocator, against their oracles."""

import copy
import random

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from reference import page_segments as oracle
from reference.list_parts import with_parts

from dsv4_npu_ops import RequestTables
from dsv4_npu_ops.layout import PageTable
from dsv4_npu_ops.ops import release_pages, reserve_extend

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
WINDOWED = (1, 4, 5)
COLUMNS = 12  # of windowed pools, whose rows are rings; the others have as many as the units need
UNITS = 40
REQUESTS = 3
POISON = 1 << 20


class Device:
    """Page tables with poison in strided rows, and rings of shuffled page ids, on lists and on a device alike."""

    def __init__(self, device, page_sizes, num_pages, shuffle, requests=REQUESTS):
        self.device = device
        self.page_sizes = page_sizes
        pools = {}
        for pool, size in enumerate(page_sizes):
            columns = COLUMNS if pool in WINDOWED else -(-UNITS // size)
            wide = torch.full((requests, columns + 2), POISON, dtype=torch.int32, device=device)
            pools[POOLS[pool]] = PageTable(wide[:, :columns], size)
        self.tables = RequestTables.of(pools, max_context_len=UNITS)
        self.num_pages = num_pages
        self.rings = [list(range(1, count + 1)) for count in num_pages]
        for ring in self.rings:
            shuffle(ring)

    def table(self, pool):
        return self.tables.op_tables[pool]

    def set_page(self, pool, request, page_index, page):
        table = self.table(pool)
        table[request, page_index % table.shape[1]] = page

    def free_pages(self):
        ids = [page for ring in self.rings for page in ring]
        return torch.tensor(ids, dtype=torch.int32, device=self.device)

    def rows(self):
        return [table.tolist() for table in self.tables.op_tables]

    def segments(self, rows):
        """The work list of the rows' first seven fields; the eighth counts the items before."""
        listed, items = [], 0
        for row in rows:
            listed.append([*(row + [0] * 7)[:7], items])
            items += row[3] - row[2]
        listed = with_parts(listed, lambda row: row[3] - row[2])
        return torch.tensor(listed, dtype=torch.int32, device=self.device).reshape(-1, 8)


page_size_lists = st.lists(st.sampled_from([1, 2, 8, 64]), min_size=6, max_size=6)


def draw_pages(draw, page_sizes):
    """(pool, request, first page, page after the last): intervals of pages, no more than a row has columns for."""
    intervals = []
    for pool, size in enumerate(page_sizes):
        for request in range(REQUESTS):
            limit = -(-UNITS // size)
            first = draw(st.integers(0, 30)) if pool in WINDOWED else 0
            cuts = sorted(draw(st.sets(st.integers(first, first + min(limit, COLUMNS)), max_size=4)))
            if pool not in WINDOWED:
                cuts = sorted({min(cut, limit) for cut in cuts})
            intervals += [(pool, request, begin, end) for begin, end in zip(cuts[::2], cuts[1::2], strict=False)]
    return draw(st.permutations(intervals))


@given(page_sizes=page_size_lists, data=st.data(), source=st.randoms(use_true_random=False))
def test_reserve_extend_equals_the_oracle(device, page_sizes, data, source):
    """Of every interval of pages a part of the units, of one kind."""
    num_pages = [data.draw(st.integers(40, 50)) for _ in POOLS]
    state = Device(device, page_sizes, num_pages, source.shuffle)
    segments, num_slots = [], [0] * 6
    for pool, request, first_page, end_page in draw_pages(data.draw, page_sizes):
        size = page_sizes[pool]
        kind = data.draw(st.sampled_from([oracle.KEEP, oracle.TAKE, oracle.NONE]))
        begin, end = first_page * size, end_page * size - source.randrange(size)
        if kind != oracle.TAKE:
            begin += source.randrange(min(size, end - begin))
        if kind == oracle.KEEP:
            for page_index in range(begin // size, -(-end // size)):
                state.set_page(pool, request, page_index, source.randrange(1, 99))
        position = source.randrange(num_pages[pool])
        segments.append([pool, request, begin, end, kind, position, num_slots[pool]])
        num_slots[pool] += end - begin
    want_rows = state.rows()
    want = oracle.reserve_extend(want_rows, state.rings, segments, num_slots, page_sizes)
    free_pages = state.free_pages()
    untouched = free_pages.clone()

    got = reserve_extend(state.tables, free_pages, state.segments(segments), num_pages, num_slots)
    assert state.rows() == want_rows
    assert torch.equal(free_pages, untouched)
    for slots, wanted in zip(got.in_order(), want, strict=True):
        assert slots.dtype == torch.int32 and slots.tolist() == wanted


@pytest.mark.parametrize("count", [270, 269, 2100])
def test_reserve_extend_of_many_segments(device, count):
    """More than a core works on at a time, of all kinds in turn; kept pages in halves.
    A search for a block's first segment cuts one of the lists into equal parts, and not the others. Of the longest, two
    blocks have more segments each than they hold."""
    requests = -(-count // 90)
    state = Device(device, [4] * 6, [UNITS] * 6, random.Random(1).shuffle, requests)
    segments, num_slots = [], [0] * 6
    for pool in range(6):
        for request in range(requests):
            state.table(pool)[request] = torch.arange(16, 16 + state.table(pool).shape[1])
            for page in range(UNITS // 4):
                unit, take = 4 * page, (page + request) % 2 == 1
                kinds = [(0, 4, oracle.TAKE)] if take else [(0, 2, oracle.KEEP), (2, 4, oracle.KEEP)]
                for begin, end, kind in kinds[: count - len(segments)]:
                    segments.append([pool, request, unit + begin, unit + end, kind, page, num_slots[pool]])
                    num_slots[pool] += end - begin
    assert len(segments) == count
    want_rows = state.rows()
    want = oracle.reserve_extend(want_rows, state.rings, segments, num_slots, [4] * 6)
    got = reserve_extend(state.tables, state.free_pages(), state.segments(segments), state.num_pages, num_slots)
    assert state.rows() == want_rows
    assert [slots.tolist() for slots in got.in_order()] == want


def alike_segments(state, pool, kind, units, requests, ring_position, first_page):
    """A segment of each request, one after another in the ring, in a page of its own."""
    size = state.page_sizes[pool]
    offset = min(3, size - units) if kind == oracle.KEEP else 0
    rows = []
    for index, request in enumerate(requests):
        page = first_page + index * 5 % 7 if pool in WINDOWED else (first_page + index) % (UNITS // size)
        if kind != oracle.TAKE:
            state.set_page(pool, request, page, 7 + index)
        begin = page * size + offset
        position = (ring_position + index) % state.num_pages[pool] if kind == oracle.TAKE else 0
        rows.append([pool, request, begin, begin + units, kind, position])
    return rows


def in_outputs(rows, num_slots):
    """The rows of a work list, whose outputs follow each other."""
    for row in rows:
        row.append(num_slots[row[0]])
        num_slots[row[0]] += row[3] - row[2]
    return rows


@pytest.mark.parametrize("units", [1, 4, 8])
@pytest.mark.parametrize("first_page", [0, 100, (1 << 20) - 2])
def test_reserve_extend_of_runs_that_are_alike(device, units, first_page):
    """More segments of a kind than a core takes at a time; around the end of rings and of rows, and with other segments
    between. The last pages of windowed pools are further than a core finds columns for together."""
    requests = 150
    state = Device(device, [8] * 6, [170, 160, 40, 200, 170, 180], random.Random(2).shuffle, requests)
    rows = []
    for pool in range(6):
        kinds = [oracle.TAKE, oracle.KEEP] if pool % 2 else [oracle.TAKE if pool == 4 else oracle.KEEP]
        for kind in kinds:
            page = first_page + (kind == oracle.KEEP)
            position = 130 % state.num_pages[pool]
            run = alike_segments(state, pool, kind, units, range(requests), position, page)
            # Where the next one would be, but shorter, or longer where the page after it is free and has a column.
            run[90][3] -= units // 2
            longer = next(row for row in run[60:] if pool in WINDOWED or row[2] < 32)
            if kind == oracle.KEEP or pool == 4:
                longer[3] += 8
                if kind == oracle.KEEP:
                    state.set_page(pool, longer[1], longer[2] // 8 + 1, 5)
            rows += [row for row in run if row[1] != longer[1] + 1]
            rows += [[pool, 140, 24, 24 + units, oracle.NONE, 0]]
    num_slots = [0] * 6
    segments = in_outputs(rows, num_slots)
    want_rows = state.rows()
    want = oracle.reserve_extend(want_rows, state.rings, segments, num_slots, [8] * 6)
    got = reserve_extend(state.tables, state.free_pages(), state.segments(segments), state.num_pages, num_slots)
    assert state.rows() == want_rows
    assert [slots.tolist() for slots in got.in_order()] == want


@pytest.mark.simulated_only
@pytest.mark.parametrize("kind", [oracle.TAKE, oracle.KEEP])
def test_segments_that_are_alike_take_few_accesses(ascend_sim, kind):
    """Three a segment, or four where pages are kept, and some for each run; pages that are taken are fetched, and slots
    are stored, by one copy. Only taken pages are written to the table."""
    requests, pool = 60, 1
    state = Device(torch.device("cpu"), [8] * 6, [80] * 6, lambda ring: None, requests)
    num_slots = [0] * 6
    rows = alike_segments(state, pool, kind, 4, range(requests), 3, 0)
    odd = [pool, 0, 100, 108, oracle.NONE, 0]
    segments = in_outputs([*rows[:30], odd, *rows[30:]], num_slots)
    ascend_sim.force_blocks(1)
    reserve_extend(state.tables, state.free_pages(), state.segments(segments), state.num_pages, num_slots)
    ascend_sim.force_blocks(0)
    (launch,) = ascend_sim.take_counters()
    taken = requests if kind == oracle.TAKE else 0
    assert launch["ub_scalar_reads"] < (3 if taken else 4) * requests + 50
    assert launch["mte3_calls"] == 3 + taken
    assert launch["mte2_calls"] == 2 + (2 if taken else requests)


@pytest.mark.parametrize("page_size, units", [(4096, 9000), (1, 3000), (128, 5000)])
def test_reserve_extend_of_pages_and_intervals_longer_than_a_piece(device, page_size, units):
    """Several pieces a page, and pieces of several pages; around the end of both rings."""
    columns = -(-units // page_size)
    table = torch.full((2, columns), POISON, dtype=torch.int32, device=device)
    tables = RequestTables.of({"swa": PageTable(table, page_size)}, max_context_len=units)
    ring = list(range(1, columns + 4))
    first = (columns // 2) * page_size
    segments = [[1, 0, first, first + units, oracle.TAKE, columns, 0], [1, 0, 0, units, oracle.NONE, 0, units]]
    want_rows = [None, table.tolist()]
    want = oracle.reserve_extend(want_rows, [None, ring], segments, [0, 2 * units, 0, 0, 0, 0], [None, page_size])
    free_pages = torch.tensor(ring, dtype=torch.int32, device=device)
    listed = with_parts([[*segments[0], 0], [*segments[1], units]], lambda row: row[3] - row[2])
    work = torch.tensor(listed, dtype=torch.int32, device=device)
    num_pages = [0, len(ring), 0, 0, 0, 0]
    got = reserve_extend(tables, free_pages, work, num_pages, [0, 2 * units, 0, 0, 0, 0])
    assert table.tolist() == want_rows[1]
    assert got.out_swa_loc.tolist() == want[1]


@given(page_sizes=page_size_lists, data=st.data(), source=st.randoms(use_true_random=False))
def test_release_pages_equals_the_oracle(device, page_sizes, data, source):
    num_pages = [UNITS * REQUESTS] * 6
    state = Device(device, page_sizes, num_pages, source.shuffle)
    segments, given_back = [], [source.randrange(count) for count in num_pages]
    for pool, request, begin, end in draw_pages(data.draw, page_sizes):
        position = -1
        if data.draw(st.booleans()):
            position = given_back[pool] % num_pages[pool]
            given_back[pool] += end - begin
            for page_index in range(begin, end):
                state.set_page(pool, request, page_index, source.randrange(1, 99))
        segments.append([pool, request, begin, end, position])
    want_rows, want_rings = state.rows(), copy.deepcopy(state.rings)
    oracle.release_pages(want_rows, want_rings, segments)
    free_pages = state.free_pages()

    release_pages(state.tables, free_pages, state.segments(segments), num_pages)
    assert state.rows() == want_rows
    assert free_pages.tolist() == [page for ring in want_rings for page in ring]


def test_release_of_more_pages_than_a_batch(device):
    """More than a piece, more than a batch, and more segments than one."""
    columns, requests = 9000, 70
    table = torch.arange(1, columns * requests + 1, dtype=torch.int32, device=device).reshape(requests, columns)
    tables = RequestTables.of({"full": PageTable(table, 1)}, max_context_len=columns)
    num_pages = [columns + requests, 0, 0, 0, 0, 0]
    segments = [[0, 0, 0, columns, 7]]
    segments += [[0, i, 3 + i, 4 + i, (columns + 7 + i - 1) % num_pages[0]] for i in range(1, requests)]
    want_rows, want_rings = [table.tolist()], [[0] * num_pages[0]]
    oracle.release_pages(want_rows, want_rings, segments)
    listed, items = [], 0
    for row in segments:
        listed.append([*row, 0, 0, items])
        items += row[3] - row[2]
    free_pages = torch.zeros(num_pages[0], dtype=torch.int32, device=device)
    work = torch.tensor(with_parts(listed, lambda row: row[3] - row[2]), dtype=torch.int32, device=device)
    release_pages(tables, free_pages, work, num_pages, num_items=items)
    assert table.tolist() == want_rows[0]
    assert free_pages.tolist() == want_rings[0]


def device_with_one_page(pages_of_swa=0):
    """Page size 8; request 1 holds page 3 of `full` for its first 8 units."""
    state = Device(torch.device("cpu"), [8] * 6, [4, 4, 4, 4, 4, 0], lambda ring: None)
    state.table(0)[1, 0] = 3
    state.table(1)[1] = pages_of_swa
    return state


BAD_RESERVE_SEGMENTS = [
    ([6, 0, 0, 8, 1, 0, 0], "expected a pool that exists, 0 <= pool < 6"),
    ([0, 3, 0, 8, 1, 0, 0], "expected a row of the page tables"),
    ([0, -1, 0, 8, 1, 0, 0], "expected a row of the page tables"),
    ([0, 0, 32, 41, 1, 0, 0], "expected a non-empty interval of units that the table has columns for"),
    ([1, 0, 0, 97, 1, 0, 0], "expected a non-empty interval of units that the table has columns for"),
    ([0, 0, 8, 8, 1, 0, 0], "expected a non-empty interval of units that the table has columns for"),
    ([0, 0, 0, 8, 1, 0, 3], "expected an interval of the pool's output"),
    ([0, 0, 0, 8, 1, 0, -1], "expected an interval of the pool's output"),
    ([0, 0, 0, 8, 3, 0, 0], "expected source 0 (keep), 1 (take pages) or 2 (no slots)"),
    ([0, 0, 0, 8, 1, 4, 0], "an interval that starts a page, and pages in the ring"),
    ([0, 0, 4, 8, 1, 0, 0], "an interval that starts a page, and pages in the ring"),
    ([5, 0, 0, 8, 1, 0, 0], "an interval that starts a page, and pages in the ring"),
    ([1, 1, 4, 5, 0, 0, 0], "page 0 of request 1 in pool swa is 0, expected a page that the request owns"),
    ([1, 1, 4, 9, 0, 0, 0], "page 0 of request 1 in pool swa is 0, expected a page that the request owns"),
]


@pytest.mark.cpu_only
@pytest.mark.parametrize("segment, message", BAD_RESERVE_SEGMENTS, ids=[str(s) for s, _ in BAD_RESERVE_SEGMENTS])
def test_bad_reserve_segments_write_nothing(segment, message):
    state = device_with_one_page()
    before = state.rows()
    with pytest.raises(ValueError) as error:
        reserve_extend(
            state.tables,
            state.free_pages(),
            state.segments([[0, 2, 0, 8, 1, 0, 0], segment]),
            state.num_pages,
            [10] * 6,
        )
    assert "reserve_extend: " in str(error.value) and message in str(error.value)
    assert state.rows() == before


BAD_RELEASE_SEGMENTS = [
    ([-1, 0, 0, 1, -1], "expected a pool that exists, 0 <= pool < 6"),
    ([0, 3, 0, 1, -1], "expected a row of the page tables"),
    ([0, 0, 0, 6, -1], "expected a non-empty interval of pages that the table has columns for"),
    ([1, 0, 4, 17, -1], "expected a non-empty interval of pages that the table has columns for"),
    ([0, 0, 2, 2, -1], "expected a non-empty interval of pages that the table has columns for"),
    ([0, 1, 0, 1, 4], "expected ring position -1, or a position in the ring and no more pages than it has"),
    ([0, 1, 0, 1, -2], "expected ring position -1, or a position in the ring and no more pages than it has"),
    ([0, 1, 0, 5, 0], "expected ring position -1, or a position in the ring and no more pages than it has"),
    ([1, 1, 0, 1, 0], "page 0 of request 1 in pool swa is 0, expected a page that the request owns"),
]


@pytest.mark.cpu_only
@pytest.mark.parametrize("segment, message", BAD_RELEASE_SEGMENTS, ids=[str(s) for s, _ in BAD_RELEASE_SEGMENTS])
def test_bad_release_segments_write_nothing(segment, message):
    state = device_with_one_page()
    before = state.rows()
    free_pages = state.free_pages()
    untouched = free_pages.clone()
    with pytest.raises(ValueError) as error:
        release_pages(state.tables, free_pages, state.segments([[0, 1, 0, 1, 1], segment]), state.num_pages)
    assert "release_pages: " in str(error.value) and message in str(error.value)
    assert state.rows() == before
    assert torch.equal(free_pages, untouched)


BAD_ARGUMENTS = [
    (dict(segments=torch.zeros(1, 7, dtype=torch.int32)), "segments has shape [1, 7], expected [1, 8]"),
    (dict(segments=torch.zeros(17, 8, dtype=torch.int32)), "segments has 17 rows, expected 0, or more than 17: behind"),
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


def test_a_negative_number_of_items():
    state = device_with_one_page()
    with pytest.raises(ValueError, match="release_pages: num_items is -1, expected at least 0"):
        release_pages(state.tables, state.free_pages(), state.segments([]), state.num_pages, num_items=-1)


@pytest.mark.cpu_only
@pytest.mark.parametrize("op, items", [("reserve_extend", 8), ("release_pages", 2)])
def test_wrong_count_of_items_before_writes_nothing(op, items):
    state = device_with_one_page()
    before = state.rows()
    segments = state.segments([[0, 2, 0, items, 1, 0, 0], [0, 0, 0, items, 1, 1, 0]])
    segments[1, 7] = 9
    with pytest.raises(ValueError, match=rf"{op}: segments\[1\] says that 9 come before it, expected {items}"):
        if op == "reserve_extend":
            reserve_extend(state.tables, state.free_pages(), segments, state.num_pages, [16] * 6)
        else:
            state.table(0)[2, :2] = 1
            before = state.rows()
            release_pages(state.tables, state.free_pages(), segments, state.num_pages)
    assert state.rows() == before


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    "part, segment, item, message",
    [
        (0, 1, 8, "part 0 of segments begins at item 8 in segment 1, expected an item of that segment, none"),
        (3, 0, -1, "part 3 of segments begins at item -1 in segment 0, expected an item of that segment, none"),
        (40, 0, 8, "part 40 of segments begins at item 8 in segment 0"),
        (40, 1, 7, "part 40 of segments begins at item 7 in segment 1"),
        (40, 1, 16, "part 40 of segments begins at item 16 in segment 1"),
        (40, 2, 16, "part 40 of segments begins at item 16 in segment 2"),
        (40, -1, 0, "part 40 of segments begins at item 0 in segment -1"),
        (40, 0, 2, "part 40 of segments begins at item 2 in segment 0, expected an item of that segment, none"),
        (64, 1, 16, "the parts of segments end at item 16 and segment 1, expected 16 and 2"),
        (64, 2, 15, "the parts of segments end at item 15 and segment 2, expected 16 and 2"),
    ],
)
def test_wrong_parts_write_nothing(part, segment, item, message):
    state = device_with_one_page()
    before = state.rows()
    work = state.segments([[0, 2, 0, 8, 1, 0, 0], [0, 0, 0, 8, 1, 1, 8]])
    work[2:].view(-1)[2 * part : 2 * part + 2] = torch.tensor([segment, item])
    with pytest.raises(ValueError, match=f"reserve_extend: {message}"):
        reserve_extend(state.tables, state.free_pages(), work, state.num_pages, [16, 0, 0, 0, 0, 0])
    assert state.rows() == before


@pytest.mark.parametrize("num_slots", [[0] * 5, [0, 0, 0, 0, 0, -1]])
def test_bad_output_sizes(num_slots):
    state = device_with_one_page()
    with pytest.raises(ValueError, match="reserve_extend: num_slots"):
        reserve_extend(state.tables, state.free_pages(), state.segments([]), state.num_pages, num_slots)


def op_arguments(op, **bad):
    """Arguments of the torch op, in order, for one good segment."""
    state = device_with_one_page()
    taken = [[0, 0, 0, 8, 1, 1, 0]] if op == "reserve_extend" else [[0, 1, 0, 1, 2]]
    good = dict(
        tables=state.tables.op_tables,
        free_pages=state.free_pages(),
        segments=state.segments(taken),
        num_pages=state.num_pages,
    )
    if op == "reserve_extend":
        good["num_slots"] = [8, 0, 0, 0, 0, 0]
    return tuple((good | dict(page_sizes=[8] * 6) | bad).values())


BAD_TABLES = [
    (dict(page_sizes=[8, 8, 12, 8, 8, 8]), "page size of pool c4 is 12, expected a power of two from 1 up"),
    (dict(page_sizes=[8, 8, 0, 8, 8, 8]), "tables has 6 entries, expected 5, one for each pool with a page size"),
    (dict(page_sizes=[8] * 5), "page_sizes has 5 entries, expected 6"),
    (dict(tables=[torch.zeros(3, 5)] * 6), "table of pool full has dtype Float, expected Int"),
    (dict(tables=[torch.zeros(3, 5, dtype=torch.int64)] * 6), "table of pool full has dtype Long, expected Int"),
    (dict(tables=[torch.zeros(5, dtype=torch.int32)] * 6), "table of pool full has shape [5], expected 2 dimensions"),
    (dict(tables=[torch.zeros(3, 0, dtype=torch.int32)] * 6), "table of pool full has shape [3, 0], expected at least"),
    (
        dict(tables=[*[torch.zeros(3, 5, dtype=torch.int32)] * 5, torch.zeros(2, 5, dtype=torch.int32)]),
        "table of pool c128_state has 2 rows, expected 3 like the first one",
    ),
    (
        dict(tables=[torch.zeros(1, 5, dtype=torch.int32).expand(3, 5)] * 6),
        "table of pool full has strides [0, 1], expected rows that do not overlap",
    ),
]


@pytest.mark.parametrize("bad, message", BAD_TABLES, ids=[message for _, message in BAD_TABLES])
@pytest.mark.parametrize("op", ["reserve_extend", "release_pages"])
def test_bad_tables(op, bad, message):
    with pytest.raises(ValueError) as error:
        getattr(torch.ops.dsv4_npu_ops, op)(*op_arguments(op, **bad))
    assert f"{op}: {message}" in str(error.value)


@pytest.mark.parametrize("op", ["reserve_extend", "release_pages"])
def test_opcheck(op):
    opcheck(getattr(torch.ops.dsv4_npu_ops, op).default, op_arguments(op))


def test_pools_that_do_not_exist(device):
    """Only c4 does; the rings of the others are empty."""
    table = torch.zeros(2, 3, dtype=torch.int32, device=device)
    tables = RequestTables.of({"c4": PageTable(table, 2)}, max_context_len=16)
    free_pages = torch.tensor([5, 6], dtype=torch.int32, device=device)
    listed = with_parts([[2, 1, 0, 3, 1, 1, 0, 0]], lambda row: row[3] - row[2])
    segments = torch.tensor(listed, dtype=torch.int32, device=device)
    got = reserve_extend(tables, free_pages, segments, [0, 0, 2, 0, 0, 0], [0, 0, 3, 0, 0, 0])
    assert got.out_c4_loc.tolist() == [12, 13, 10] and table[1].tolist() == [6, 5, 0]
    assert got.out_full_loc.shape == (0,)


@pytest.mark.device_only
def test_a_bad_reserve_segment_is_left_out_and_reported(ascend_sim):
    state = device_with_one_page()
    before = state.rows()
    segments = state.segments([[0, 2, 0, 8, 1, 0, 0], [0, 3, 0, 8, 1, 1, 8], [0, 1, 8, 12, 1, 2, 16]])
    got = reserve_extend(state.tables, state.free_pages(), segments, state.num_pages, [20, 0, 0, 0, 0, 0])
    before[0][2][0], before[0][1][1] = 1, 3
    assert state.rows() == before
    assert got.out_full_loc[:8].tolist() == list(range(8, 16))
    assert got.out_full_loc[16:].tolist() == list(range(24, 28))
    assert ascend_sim.take_errors() == [[7, 2, 1, 3, 0, 0, 0, 0]]


@pytest.mark.device_only
@pytest.mark.parametrize(
    "field, value, code",
    [
        (0, 6, 1),
        (1, 60, 2),
        (1, -1, 2),
        (2, -4, 3),
        (2, 40, 3),
        (4, 3, 5),
        (5, 90, 6),
        (6, 237, 4),
    ],
)
@pytest.mark.parametrize("bad", [0, 20, 59])
def test_a_bad_segment_among_many_that_are_alike(ascend_sim, field, value, code, bad):
    requests = 60
    state = Device(torch.device("cpu"), [8] * 6, [80] * 6, lambda ring: None, requests)
    num_slots = [0] * 6
    segments = in_outputs(alike_segments(state, 0, oracle.TAKE, 4, range(requests), 3, 0), num_slots)
    good = copy.deepcopy(segments)
    segments[bad][field] = value
    if field == 2:
        segments[bad][3] = value + 4
    del good[bad]
    want_rows = state.rows()
    want = oracle.reserve_extend(want_rows, state.rings, good, num_slots, [8] * 6)[0]
    got = reserve_extend(state.tables, state.free_pages(), state.segments(segments), state.num_pages, num_slots)
    assert state.rows() == want_rows
    assert got.out_full_loc[: 4 * bad].tolist() == want[: 4 * bad]
    assert got.out_full_loc[4 * bad + 4 :].tolist() == want[4 * bad + 4 :]
    assert ascend_sim.take_errors() == [[7, code, bad, segments[bad][1], 0, 0, 0, 0]]


@pytest.mark.device_only
def test_a_bad_release_segment_is_left_out_and_reported(ascend_sim):
    state = device_with_one_page()
    before = state.rows()
    free_pages = state.free_pages()
    segments = state.segments([[0, -1, 0, 1, 0], [0, 1, 0, 1, 1], [0, 2, 0, 6, -1]])
    release_pages(state.tables, free_pages, segments, state.num_pages)
    before[0][1][0] = 0
    assert state.rows() == before
    assert free_pages[:4].tolist() == [1, 3, 3, 4]
    assert [lane[:2] for lane in ascend_sim.take_errors()] == [[8, 2]]

"""Rows of write_req_tables that a device scans by the vector unit, and those that it leaves to the scalar unit."""

import random

import pytest
import torch
from reference import write_req_tables as oracle
from test_write_req_tables import SLOTS, as_loc, lists, poisoned_tables, sizes

import dsv4_npu_ops

HIGH_WORD = 1 << 32
NEGATIVE_START, END_BEFORE_START, UNKNOWN_REQUEST, BEYOND_TABLE, BEYOND_SLOTS = 1, 2, 3, 4, 5


def write_and_compare(ascend_sim, kinds, rows, bad, blocks, slots, max_requests, state_starts=None):
    """Writes the rows; all but that of index ``bad`` must be where the oracle has them. Returns the error words."""
    tables = poisoned_tables("cpu", kinds, max_requests=max_requests)
    want = lists(tables)
    good = [i for i in range(len(rows)) if i != bad]
    columns = [[rows[i][field] for i in good] for field in range(3)]
    kept = None if state_starts is None else [[starts[i] for i in good] for starts in state_starts]
    locs = [list(range(100, 100 + slots))] * 6
    oracle.write_req_tables(want, sizes(kinds), *columns, locs, kept)
    given = (torch.tensor([row[field] for row in rows]) for field in range(3))
    own = None if state_starts is None else tuple(torch.tensor(starts) for starts in state_starts)
    ascend_sim.force_blocks(blocks)
    dsv4_npu_ops.write_req_tables(tables, *given, as_loc(locs, "cpu"), state_starts=own)
    ascend_sim.force_blocks(0)
    assert lists(tables) == want
    return ascend_sim.take_errors()


@pytest.mark.device_only
@pytest.mark.parametrize(
    "row, fault, value",
    [
        ((HIGH_WORD, 0, 4), UNKNOWN_REQUEST, 0),
        ((HIGH_WORD + 1, 0, 4), UNKNOWN_REQUEST, 1),
        ((-HIGH_WORD, 0, 4), UNKNOWN_REQUEST, 0),
        ((1 << 31, 0, 4), UNKNOWN_REQUEST, -(1 << 31)),
        ((4, 0, 4), UNKNOWN_REQUEST, 4),
        ((1, HIGH_WORD, 4), END_BEFORE_START, 4),
        ((1, -HIGH_WORD, 4), NEGATIVE_START, 4),
        ((1, 0, HIGH_WORD + 4), BEYOND_TABLE, 4),
        ((1, 0, -HIGH_WORD + 4), END_BEFORE_START, 4),
        ((1, 300, 301), BEYOND_TABLE, 301),
        ((1, 0, 13), BEYOND_SLOTS, 13),
    ],
)
def test_a_bad_row_among_good_ones(ascend_sim, row, fault, value):
    rows = [(0, 0, 4), row, (2, 0, 4)]
    errors = write_and_compare(ascend_sim, SLOTS, rows, 1, 2, 12, 4)
    assert errors == [[5, fault, 1, value, 0, 0, 0, 0]]


@pytest.mark.device_only
@pytest.mark.parametrize("pool", [0, 1])
@pytest.mark.parametrize("start, fault", [(-1, NEGATIVE_START), (5, END_BEFORE_START), (HIGH_WORD, END_BEFORE_START)])
def test_a_bad_state_start(ascend_sim, pool, start, fault):
    rows = [(0, 0, 4), (3, 0, 4), (2, 0, 4)]
    state_starts = [[0, 0, 0], [0, 0, 0]]
    state_starts[pool][1] = start
    errors = write_and_compare(ascend_sim, SLOTS, rows, 1, 2, 12, 4, state_starts)
    assert errors == [[5, fault, 1, 4, 0, 0, 0, 0]]


@pytest.mark.device_only
@pytest.mark.parametrize("end, fits", [(12, True), (13, False)])
def test_as_many_pages_as_a_ring_has_columns(ascend_sim, end, fits):
    """Units [3, end) of pages of 4, on three columns."""
    kinds = {"full": SLOTS["full"], "swa": (4, torch.int32, 3)}
    errors = write_and_compare(ascend_sim, kinds, [(0, 0, 4), (1, 3, end), (2, 0, 4)], None if fits else 1, 2, 30, 4)
    assert errors == ([] if fits else [[5, BEYOND_TABLE, 1, end, 0, 0, 0, 0]])


@pytest.mark.device_only
@pytest.mark.parametrize("slots, fits", [(10, True), (9, False)])
def test_as_many_slots_as_there_are(ascend_sim, slots, fits):
    rows = [(0, 0, 4), (1, 0, 3), (2, 0, 3)]
    errors = write_and_compare(ascend_sim, {"full": SLOTS["full"]}, rows, None if fits else 2, 2, slots, 4)
    assert errors == ([] if fits else [[5, BEYOND_SLOTS, 2, 3, 0, 0, 0, 0]])


@pytest.mark.device_only
@pytest.mark.parametrize("own_starts", [False, True])
@pytest.mark.parametrize("blocks", [1, 5])
def test_chunks_of_rows(ascend_sim, blocks, own_starts):
    """Three chunks, of which the second has a bad row; padding names requests that there are not."""
    source = random.Random(blocks)
    rows = []
    for request in range(700):
        start = source.randrange(200)
        rows.append((request, start, start + source.choice([0, 1, 4, 100])))
    rows = [(-1 - i if begin == end else request, begin, end) for i, (request, begin, end) in enumerate(rows)]
    rows[300] = (9999, 1, 2)
    # Padding may have them before its end too.
    starts = [[max(0, start - source.randrange(2) * (start == end)) for _, start, end in rows] for _ in range(2)]
    kinds = {
        "full": SLOTS["full"],
        "swa": (16, torch.int64, 20),
        "c4": (4, torch.int32, None),
        "c128": SLOTS["c128"],
        "c4_state": (8, torch.int32, None),
        "c128_state": SLOTS["c128_state"],
    }
    slots = sum(end - start for _, start, end in rows)
    errors = write_and_compare(ascend_sim, kinds, rows, 300, blocks, slots, 700, starts if own_starts else None)
    assert errors == [[5, UNKNOWN_REQUEST, 300, 9999, 0, 0, 0, 0]]

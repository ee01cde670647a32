"""Requests of compressor_metadata that a device scans by the vector unit, and those left to the scalar unit."""

import random
from itertools import accumulate

import pytest
import torch
from reference import compressor_metadata as oracle

import dsv4_npu_ops

FLAT, BLOCK_SIZE = 1, 16
DECREASING, TOO_MANY_TOKENS, START_TOO_LARGE, UNKNOWN_TABLE_ROW = 1, 2, 3, 6


def steps(num_reqs, ratio):
    """Starts, widths and table rows of requests, of which some are padding, and of these some name no row."""
    source = random.Random(num_reqs)
    starts = [source.choice([-1, -7, *range(300)]) for _ in range(num_reqs)]
    widths = [source.choice([0, 1, 4, 4, ratio]) for _ in range(num_reqs)]
    rows = [source.randrange(50) for _ in range(num_reqs)]
    for i in range(num_reqs):
        if starts[i] < 0 or widths[i] == 0:
            rows[i] = source.choice([rows[i], -1, 50])
    return starts, widths, rows


def slots(ratio, starts, widths, rows, num_rows, dtypes, without=None):
    """The op's slots and the oracle's; the oracle does not see request ``without``, which brings none."""
    blocks = torch.arange(1, 50 * 64 + 1, dtype=torch.int32).view(50, 64)
    cu_seqlens = list(accumulate(widths, initial=0))
    got = dsv4_npu_ops.compressor_metadata(
        None,
        None,
        torch.tensor(cu_seqlens, dtype=dtypes[0]),
        torch.tensor(starts, dtype=dtypes[1]),
        blocks,
        BLOCK_SIZE,
        FLAT,
        ratio,
        num_rows,
        len(starts),
        req_pool_indices=torch.tensor(rows, dtype=dtypes[2]),
    )
    known = [-1 if i == without else start for i, start in enumerate(starts)]
    own_blocks = [blocks[row if 0 <= row < 50 else 0].tolist() for row in rows]
    _, _, pairs, positions = oracle.compressor_metadata(
        None, None, cu_seqlens, known, own_blocks, BLOCK_SIZE, ratio, num_rows, len(starts)
    )
    assert got.positions.tolist() == positions
    return got.slot_mapping.tolist(), list(oracle.flat(pairs, BLOCK_SIZE))


@pytest.mark.device_only
@pytest.mark.parametrize("dtypes", [[torch.int32] * 3, [torch.int64] * 3])
@pytest.mark.parametrize("num_reqs, ratio", [(1, 4), (511, 4), (513, 128), (1100, 4), (1100, 3), (1100, 1)])
def test_requests_of_several_chunks(ascend_sim, num_reqs, ratio, dtypes):
    got, want = slots(ratio, *steps(num_reqs, ratio), 5000, dtypes)
    assert got == want
    assert ascend_sim.take_errors() == []


@pytest.mark.device_only
def test_more_chunks_than_marks(ascend_sim):
    """Of 33000 requests few bring groups; the second block goes back to a mark behind which several chunks lie."""
    starts, widths, rows = [0] * 33000, [0] * 33000, [0] * 33000
    for request in (0, 511, 512, 9000, 20000, 32768, 32999):
        widths[request], rows[request] = 8, request % 50
    ascend_sim.force_blocks(2)
    got, want = slots(4, starts, widths, rows, 16, [torch.int32] * 3)
    ascend_sim.force_blocks(0)
    assert got == want
    assert ascend_sim.take_errors() == []


@pytest.mark.device_only
def test_more_groups_than_int32(ascend_sim):
    many = (1 << 31) - 1
    got = dsv4_npu_ops.compressor_metadata(
        None,
        None,
        torch.tensor([0, many, 2 * many]),
        torch.tensor([0, 0]),
        torch.tensor([[7], [9]], dtype=torch.int32),
        BLOCK_SIZE,
        FLAT,
        1,
        4,
        2,
    )
    assert got.slot_mapping.tolist() == [112, 113, 114, 115] and got.positions.tolist() == [0, 1, 2, 3]
    assert ascend_sim.take_errors() == [[6, 4, 0, many, 0, 0, 0, 0]]


@pytest.mark.device_only
@pytest.mark.parametrize("bad", [0, 600, 1099])
@pytest.mark.parametrize(
    "start, row, code, value",
    [
        (1 << 31, 0, START_TOO_LARGE, -(1 << 31)),
        (1 << 32, 0, START_TOO_LARGE, 0),
        ((1 << 32) + (1 << 31), 0, START_TOO_LARGE, -(1 << 31)),
        (0, 50, UNKNOWN_TABLE_ROW, 50),
        (0, 1 << 32, UNKNOWN_TABLE_ROW, 0),
        (0, -1, UNKNOWN_TABLE_ROW, -1),
    ],
)
def test_a_bad_request_in_one_of_several_chunks(ascend_sim, bad, start, row, code, value):
    starts, widths, rows = steps(1100, 4)
    starts[bad], widths[bad], rows[bad] = start, 4, row
    ascend_sim.force_blocks(1)
    got, want = slots(4, starts, widths, rows, 5000, [torch.int64] * 3, without=bad)
    ascend_sim.force_blocks(0)
    assert got == want
    # A device whose blocks nobody chooses says it in each.
    assert {tuple(lane) for lane in ascend_sim.take_errors()} == {(6, code, bad, value, 0, 0, 0, 0)}


@pytest.mark.device_only
@pytest.mark.parametrize("start", [-1, -(1 << 31), -(1 << 32), -(1 << 32) - 5, -(1 << 62)])
def test_any_negative_start_brings_no_group(ascend_sim, start):
    got, want = slots(4, [4, start, 8], [4, 4, 4], [0, 99, 1], 3, [torch.int64] * 3)
    assert got == want
    assert ascend_sim.take_errors() == []

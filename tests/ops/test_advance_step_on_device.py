"""advance_step on a device: more rows and tokens than a core reads at a time, numbers at the ends of their types."""

import pytest
import torch
from ops.advance_inputs import Verify
from ops.step_inputs import filled_tables, plain_pools
from reference.advance_step import Verified
from reference.step import Address

from dsv4_npu_ops import KVLayout, MappedSlots, PageTable, RequestRing, RequestTables, advance_step

pytestmark = pytest.mark.device_only
LONGEST = 2**31 - 1


def ring_of_16(context):
    """Tables for requests of any number, and how the oracle takes them."""
    tables = RequestTables.of({"full": RequestRing(16)}, max_context_len=context)
    return tables, {"full": Address("request_ring", ring=16)}


@pytest.mark.parametrize(
    "mode, ragged", [("accepted", False), ("accepted", True), ("samples", False), ("drafts", True)]
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("rings", [False, True])
def test_rows_of_many_tokens(ascend_sim, mode, ragged, dtype, rings):
    """Newest tokens that are fetched one by one; some rows have a backup token instead."""
    count, width = 300, 40
    tables = filled_tables(KVLayout(16, 20, count, 600, {"full": 40, "swa": 40}), 3, "cpu")
    pools = plain_pools(tables)
    if rings:
        tables, pools = ring_of_16(600)
    rows, first = [], 0
    for i in range(count):
        inputs = width - i % 3 if ragged else width
        kept = 0 if i % 5 == 4 else 1 + i % (inputs - 1)
        judged = kept if mode == "accepted" else [1000 * i + j if j < kept else -1 for j in range(width)]
        drafts = inputs - 1 if mode == "drafts" else None
        rows.append(Verified(i, 0 if i % 7 == 3 else 5 + i, first, inputs, judged, drafts, backup=7_000_000 + i))
        first += inputs
    step = Verify(
        tables,
        pools,
        600,
        rows,
        mode,
        ragged=ragged,
        has_backup=True,
        tokens=list(range(100, 100 + first)),
        dtypes=(torch.int64, torch.int32, torch.int64, dtype),
    )
    arguments, keywords = step.arguments("cpu")
    step.assert_equal(advance_step(*arguments, **keywords))
    assert ascend_sim.take_errors() == []


def test_the_longest_lengths(ascend_sim):
    tables, pools = ring_of_16(LONGEST)
    rows = [Verified(0, LONGEST - 3, 0, 3, 3), Verified(1, LONGEST - 3, 3, 3, 2), Verified(2**26, LONGEST, 6, 3, 0)]
    step = Verify(tables, pools, LONGEST, rows, tokens=list(range(9)), dummies=(-1, 0))
    arguments, keywords = step.arguments("cpu")
    step.assert_equal(advance_step(*arguments, **keywords))
    assert ascend_sim.take_errors() == []


BEYOND_CONTEXT, BAD_TOKENS, BAD_ACCEPTED, BAD_DRAFTS = 2, 3, 4, 6
ENDS = [-(2**63), -(2**40) - 1, -(2**31) - 1, -(2**31), 2**31 - 1, 2**31, 2**32 + 2, 2**62, 2**63 - 1]


def low_half(value):
    return (value + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("value", ENDS)
def test_accepted_lengths_and_lengths_at_the_ends_of_int64(ascend_sim, value):
    tables, pools = ring_of_16(LONGEST)
    for place, fault in (("accepted", BAD_ACCEPTED), ("length", 1 if value < 0 else BEYOND_CONTEXT)):
        if place == "length" and value == LONGEST:
            continue
        rows = [Verified(0, 7, 0, 3, 1), Verified(0, 0, 3, 3, 0), Verified(1, 9, 6, 3, 2)]
        step = Verify(tables, pools, LONGEST, rows, tokens=list(range(9)))
        arguments, keywords = step.arguments("cpu")
        arguments[1][1], arguments[2][1], arguments[3][1] = 1, 5, 2
        arguments[3 if place == "accepted" else 2][1] = value
        step.assert_equal(advance_step(*arguments, **keywords))
        assert ascend_sim.take_errors() == [[12, fault, 1, low_half(value), 0, 0, 0, 0]]


@pytest.mark.parametrize("value", ENDS)
def test_drafts_at_the_ends_of_int64(ascend_sim, value):
    tables, pools = ring_of_16(LONGEST)
    rows = [Verified(0, 7, 0, 3, [4, -1, -1], 2), Verified(0, 0, 3, 3, [-1] * 3, 0), Verified(2, 9, 6, 3, [5, 6, 7], 2)]
    step = Verify(tables, pools, LONGEST, rows, "drafts", final=True)
    arguments, keywords = step.arguments("cpu")
    arguments[2][1], keywords["num_draft_tokens"][1] = 8, value
    step.assert_equal(advance_step(*arguments, **keywords))
    assert ascend_sim.take_errors() == [[12, BAD_DRAFTS, 1, low_half(value), 0, 0, 0, 0]]


@pytest.mark.parametrize("begin, end", [(-(2**31), 2**31 - 1), (2**31 - 1, -(2**31)), (0, 2**31 - 1), (-(2**31), 3)])
def test_offsets_at_the_ends_of_int32(ascend_sim, begin, end):
    tables, pools = ring_of_16(LONGEST)
    rows = [Verified(0, 0, 0, 0, 0), Verified(0, 0, 0, 0, 1), Verified(0, 0, 0, 0, 0)]
    step = Verify(tables, pools, LONGEST, rows, tokens=list(range(9)), ragged=True)
    arguments, keywords = step.arguments("cpu")
    arguments[2][1] = 5
    keywords["cu_seqlens"] = torch.tensor([0, begin, end, 9], dtype=torch.int32)
    step.assert_equal(advance_step(*arguments, **keywords))
    assert ascend_sim.take_errors() == [[12, BAD_TOKENS, 1, end, 0, 0, 0, 0]]


def test_slots_that_both_pools_are_made_of(ascend_sim):
    """Full is a mapping of swa's slots, which are wanted too: neither dummy is taken for a slot."""
    block_table = torch.tensor([[3, 0], [0, 5]], dtype=torch.int32)
    mapping = torch.tensor([9] * 3 * 16 + list(range(100, 116)) + [-1] * 64, dtype=torch.int64)
    pools = {"full": MappedSlots(mapping, 16, "swa"), "swa": PageTable(block_table, 16)}
    tables = RequestTables.of(pools, max_context_len=32)
    lengths, accepted = torch.tensor([4, 4, 20]), torch.tensor([1, 1, 1])
    got = advance_step(
        tables, torch.tensor([0, 1, 1]), lengths, accepted, torch.arange(3), num_draft_tokens=1, dummy_slots=(7, 5)
    )
    assert got.out_swa_loc.tolist() == [3 * 16 + 5, 5, 5 * 16 + 5]
    assert got.out_full_loc.tolist() == [105, 7, 7]
    assert ascend_sim.take_errors() == []

"""Small steps that engines got wrong, with the right values written out: verify bundle."""

import pytest
import torch

from dsv4_npu_ops import (
    DividedSlots,
    KVLayout,
    RequestTables,
    SlotTable,
    Step,
    StepRows,
    build_step,
    flatten_verify_bundle,
)


@pytest.fixture
def tables():
    def slots(columns):
        return SlotTable((1000 * torch.arange(1, 5)[:, None] + torch.arange(columns)).int(), 128)

    return RequestTables.of(dict(full=slots(512), c4=slots(128)), max_context_len=512)


def lens(*values):
    return torch.tensor(values, dtype=torch.int32)


def test_groups_start_at_the_committed_length(tables):
    """L = 6, n = 6: groups 1 and 2, although an engine's own length field may already say 12."""
    loc = flatten_verify_bundle(tables, lens(1), lens(6), 6, seq_lens_cpu=lens(6))
    assert loc.out_c4_loc.tolist() == [2001, 2002]
    assert loc.out_full_loc.tolist() == [2006, 2007, 2008, 2009, 2010, 2011]


@pytest.mark.parametrize("width", [4, lens(4)])
def test_the_width_is_that_of_this_batch(tables, width):
    """L = 5, n = 4 of at most 8: group 1 only."""
    loc = flatten_verify_bundle(tables, lens(1), lens(5), width, seq_lens_cpu=lens(5))
    assert loc.out_c4_loc.tolist() == [2001]
    assert loc.out_full_loc.tolist() == [2005, 2006, 2007, 2008]
    fixed = flatten_verify_bundle(tables, lens(1), lens(5), width, num_tokens=8)
    assert fixed.out_c4_loc.tolist() == [2001, 0, 0]
    assert fixed.out_full_loc.tolist() == [2005, 2006, 2007, 2008, 0, 0, 0, 0]


def test_group_slots_come_from_their_own_table(tables):
    """Not from full slots by division, whose quarters would be 32 and 33."""
    tables.table("full")[0, :16] = lens(*[131, -1, 0, 135] * 4)
    tables.table("c4")[0, :2] = lens(42, 43)
    loc = flatten_verify_bundle(tables, lens(0), lens(3), 5, seq_lens_cpu=lens(3))
    assert loc.out_c4_loc.tolist() == [42, 43]


def test_group_slots_derived_from_full_slots(tables):
    """Full slots 131 and 135 end groups 0 and 1; -1 has no quarter, although -1 % 4 is 3, and that of 3 is nobody's."""
    full = tables.pools["full"]
    full.table[0, :16] = lens(-1, 0, 0, 131, 0, -1, 0, 135, 0, 0, 0, -1, 0, 0, 0, 3)
    derived = RequestTables.of(dict(full=full, c4=DividedSlots()), max_context_len=512)
    loc = flatten_verify_bundle(derived, lens(0), lens(3), 13, seq_lens_cpu=lens(3))
    assert loc.out_c4_loc.tolist() == [32, 33, 0, 0]
    slots = torch.full((4,), -77, dtype=torch.int64)
    build_step(derived, StepRows.verify(lens(3), 13), Step(out_c4_loc=slots), dummy_slots=dict(c4=-1))
    assert slots.tolist() == [32, 33, -1, -1]


def test_padding_writes_only_the_dummy_slot():
    """Five blocks of 16, one real row, three padded ones that name the same request."""
    layout = KVLayout(page_size=16, max_requests=1, max_context_len=64, num_pages=dict(full=4, swa=4))
    tables = RequestTables(layout)
    for pool in ("full", "swa"):
        tables.table(pool)[0] = lens(1, 2, 3, 4)
    loc = flatten_verify_bundle(tables, lens(0, 0, 0, 0), lens(20, 0, 0, 0), 2)
    for slots in (loc.out_full_loc, loc.out_swa_loc):
        kv = torch.zeros(layout.num_slots("full"))
        kv[slots] = 1.0
        assert kv.nonzero().flatten().tolist() == [0, 36, 37]

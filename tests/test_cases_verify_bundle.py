"""Small steps that engines got wrong, with the right values written out: verify bundle."""

import pytest
import torch

from dsv4_npu_ops import KVLayout, RequestTables, flatten_verify_bundle


@pytest.fixture
def tables():
    layout = KVLayout(max_requests=4, max_context_len=512, num_pages=dict(full=8, c4=8))
    tables = RequestTables(layout)
    for table in (tables.full, tables.c4):
        table.copy_(1000 * torch.arange(1, 5)[:, None] + torch.arange(table.shape[1]))
    return tables


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
    """Not from full slots by division: full slots 131 and 135 end groups whose slots are 32 and 33, -1 ends none."""
    tables.full[0, :16] = lens(*[131, -1, 0, 135] * 4)
    tables.c4[0, :2] = lens(32, 33)
    loc = flatten_verify_bundle(tables, lens(0), lens(3), 5, seq_lens_cpu=lens(3))
    assert loc.out_c4_loc.tolist() == [32, 33]


def test_padding_writes_only_the_dummy_slot():
    """Five blocks of 16, one real row, three padded ones that name the same request."""
    layout = KVLayout(page_size=16, max_requests=1, max_context_len=64, num_pages=dict(full=4, swa=4))
    tables = RequestTables(layout)
    tables.full[0] = torch.arange(16, 80)
    tables.swa[0] = torch.arange(16, 80)
    loc = flatten_verify_bundle(tables, lens(0, 0, 0, 0), lens(20, 0, 0, 0), 2)
    for slots in (loc.out_full_loc, loc.out_swa_loc):
        kv = torch.zeros(layout.num_slots("full"))
        kv[slots] = 1.0
        assert kv.nonzero().flatten().tolist() == [0, 36, 37]

"""Small steps over engines' tables, with the right values written out."""

import torch
from pytest import raises

from dsv4_npu_ops import (
    MappedSlots,
    PageRing,
    PageTable,
    RequestRing,
    RequestTables,
    SlotTable,
    Step,
    StepRows,
    build_step,
)


def lens(*values):
    return torch.tensor(values, dtype=torch.int32)


def blank(*shape, dtype=torch.int32):
    return torch.full(shape, -77, dtype=dtype)


def test_page_counts_of_a_step():
    """1000 tokens are 8 raw, 2 c4 and 1 c128 pages of 128; 100 tokens are 1, 1 and none."""
    pages = PageTable(torch.arange(1, 9, dtype=torch.int32).repeat(2, 1), 128)
    tables = RequestTables.of(dict(full=pages, c4=pages, c128=pages), max_context_len=1024)
    out = Step(full_page_table=blank(2, 9), c4_page_table=blank(2, 3), c128_page_table=blank(2, 2))
    build_step(tables, StepRows.final(lens(1000, 100)), out)
    assert out.full_page_table.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8, -1], [1, *[-1] * 8]]
    assert out.c4_page_table.tolist() == [[1, 2, -1], [1, -1, -1]]
    assert out.c128_page_table.tolist() == [[1, -1], [-1, -1]]
    small = RequestTables.of(dict(c4=PageTable(lens(7).view(1, 1), 32)), max_context_len=128)
    out = Step(c4_page_table=blank(1, 2), num_groups=blank(2))
    build_step(small, StepRows.prefill(lens(0), lens(104)), out)
    assert (out.c4_page_table.tolist(), out.num_groups.tolist()) == ([[7, -1]], [26, 0])


def test_explicit_states_of_ratio_4():
    """L = 6, n = 4, rings of 8 in swa pages of 128, the first of which is page 2; a padded row is all dummy."""
    tables = RequestTables.of(
        dict(swa=PageTable(lens(2, 2).view(2, 1), 128), c4_state=PageRing(8)), max_context_len=128
    )
    out = Step(c4_state_locs=blank(2, 12))
    build_step(tables, StepRows.verify(lens(6, 0), 4), out, dummy_slots=dict(c4_state=4096))
    assert out.c4_state_locs[0].tolist() == [4096, 4096, 16, 17, 18, 19, 20, 21, 22, 23, 16, 17]
    assert out.c4_state_locs[0, 8] == 22, "column 8 is position 6"
    assert out.c4_state_locs[1].tolist() == [4096] * 12


def test_explicit_states_of_ratio_128():
    """Request row 3, L = 130, n = 2, rings of 128: columns are positions 2 .. 131."""
    tables = RequestTables.of(dict(c128_state=RequestRing(128)), max_context_len=256)
    out = Step(c128_state_locs=blank(1, 130))
    build_step(tables, StepRows.verify(lens(130), 2), out, req_pool_indices=lens(3))
    assert out.c128_state_locs.tolist() == [[*range(386, 512), 384, 385, 386, 387]]


def test_groups_of_128_in_pages_of_16():
    """Group 17 of a request whose pages are [7, 9]."""
    tables = RequestTables.of(dict(c128=PageTable(lens(7, 9).view(1, 2), 16)), max_context_len=4096)
    out = Step(out_c128_loc=blank(1, dtype=torch.int64), positions_c128=blank(1, dtype=torch.int64))
    build_step(tables, StepRows.final(lens(18 * 128)), out)
    assert out.out_c128_loc.tolist() == [145] and out.positions_c128.tolist() == [17 * 128]


def test_a_ring_of_columns():
    """P = 16, 4 columns: position 100 lies in page 6, column 2; live pages 3 .. 7 are one too many."""
    tables = RequestTables.of(
        dict(swa=PageTable(lens(10, 11, 12, 13).view(1, 4), 16)), sliding_window=50, max_context_len=4096
    )
    out = Step(out_swa_loc=blank(4), swa_page_table=blank(1, 9))
    build_step(tables, StepRows.verify(lens(100), 4), out)
    assert out.out_swa_loc.tolist() == [12 * 16 + 4, 12 * 16 + 5, 12 * 16 + 6, 12 * 16 + 7]
    assert out.swa_page_table.tolist() == [[-1, -1, -1, 13, 10, 11, 12, -1, -1]]
    with raises(
        ValueError, match=r"table of pool swa has 4 columns, expected at least 5 \(live pages of row 0: 3 to 7\)"
    ):
        build_step(tables, StepRows.verify(lens(100), 13), Step(swa_page_table=blank(1, 9)))


def test_first_chunks_decodes_and_verifies_in_one_batch():
    tables = RequestTables.of(dict(c4=PageTable(lens(5, 6, 7).view(3, 1), 128)), max_context_len=512)
    out = Step(start_pos=blank(3), seqused=blank(3), positions_c4=blank(5, dtype=torch.int64), out_c4_loc=blank(5))
    build_step(tables, StepRows.mixed(lens(0, 4, 5, 9), lens(4, 130, 260)), out)
    assert out.start_pos.tolist() == [0, 129, 256]
    assert out.seqused.tolist() == [4, 1, 4]
    assert out.positions_c4.tolist() == [0, 256, 0, 0, 0]
    assert out.out_c4_loc.tolist() == [5 * 128, 7 * 128 + 64, 0, 0, 0]


def test_window_of_a_block():
    """L = 3, block 2, window 4: both rows see everything; an idle row and rows beyond the batch see slot 0."""
    swa = SlotTable(torch.tensor([[11, 22, 33, 44, 55], [1, 1, 1, 1, 1]]), 128)
    tables = RequestTables.of(dict(swa=swa), sliding_window=4, max_context_len=5)
    out = Step(window_locs=blank(6, 1, 128))
    build_step(tables, StepRows.verify(lens(3, 0), 2), out, window_block=2)
    live, idle = [11, 22, 33, 44, 55, *[-1] * 123], [0, *[-1] * 127]
    assert out.window_locs.squeeze(1).tolist() == [live, live, idle, idle, idle, idle]


def test_final_lengths_in_a_verify_replay():
    tables = RequestTables.of({}, max_context_len=64)
    out = Step(positions_c4=blank(2, dtype=torch.int64), num_groups=blank(2), kv_lens=blank(2), start_pos=blank(2))
    build_step(tables, StepRows.final(lens(10, 0), 4), out)
    assert out.positions_c4.tolist() == [4, 0] and out.num_groups.tolist() == [1, 0]
    assert out.kv_lens.tolist() == [10, 1] and out.start_pos.tolist() == [6, 0]


def test_offsets_of_a_padded_replay():
    """Widths [2, 3] in a bucket of 4 rows and 16 tokens."""
    tables = RequestTables.of({}, max_context_len=64)
    for closes, last in ((False, 5), (True, 16)):
        out = Step(cu_seqlens=blank(5), positions=blank(16, dtype=torch.int64))
        build_step(tables, StepRows.verify(lens(7, 9, 0, 0), lens(2, 3, 0, 0)), out, closes_cu_seqlens=closes)
        assert out.cu_seqlens.tolist() == [0, 2, 5, 5, last]
        assert out.positions.tolist() == [7, 8, 9, 10, 11, *[0] * 11]


def test_state_rings_behind_a_mapping():
    """swa slots by a mapping of full slots, states in rings of 16 inside their pages of 128."""
    mapping = torch.zeros(1024, dtype=torch.int64)
    mapping[500:504] = torch.tensor([300, 301, 0, 303])
    full = SlotTable(lens(500, 501, 502, 503).view(1, 4), 128)
    tables = RequestTables.of(dict(full=full, swa=MappedSlots(mapping, 128), c4_state=PageRing(16)), max_context_len=4)
    out = Step(out_swa_loc=blank(4), out_c4_state_loc=blank(4), swa_page_table=blank(1, 1))
    build_step(tables, StepRows.prefill(lens(0), lens(4)), out, dummy_slots=dict(swa=-1, c4_state=9))
    assert out.out_swa_loc.tolist() == [300, 301, -1, 303]
    assert out.out_c4_state_loc.tolist() == [2 * 16 + 12, 2 * 16 + 13, 9, 2 * 16 + 15]
    assert out.swa_page_table.tolist() == [[2]]

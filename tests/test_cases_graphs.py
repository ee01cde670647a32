"""Inputs that engines got wrong around captured graphs and multi-step drafts."""

import torch

from dsv4_npu_ops import KVAllocator, KVLayout, RequestTables
from dsv4_npu_ops.graph import BucketShape, MultiStepDraft, VerifyBucket

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")


def make_tables(page_size, pages=64):
    layout = KVLayout(page_size, 32, 4, 64, dict.fromkeys(POOLS, pages))
    return RequestTables(layout)


def rope(rows):
    return torch.randn(rows, 4), torch.randn(rows, 4)


def test_an_idle_replay_leaves_nothing_of_a_live_one():
    tables = make_tables(16)
    # With pages of 16, groups 1 and 2 of four tokens are the units 1 and 2 of their requests' first pages.
    tables.table("c4")[:2, 0] = torch.tensor([2, 3], dtype=torch.int32)
    cos, sin = rope(64)
    bucket = VerifyBucket(tables, BucketShape(2, 4), cos, sin, token_rope={"main": (cos, sin)})
    bucket.fill([0, 1], [6, 10])
    metadata = bucket.refresh().metadata
    assert metadata.c4_loc.tolist() == [33, 50, 0, 0]
    assert metadata.positions_c4.tolist() == [4, 8, 0, 0]
    assert metadata.start_pos.tolist() == [6, 10]
    assert metadata.seqused.tolist() == [4, 4]
    bucket.fill([], [])
    bucket.refresh()
    for name in ("c4_loc", "c128_loc", "positions_c4", "positions_c128", "start_pos", "seqused", "positions"):
        assert not getattr(metadata, name).any(), name
    assert metadata.kv_lens.tolist() == [1, 1]
    assert metadata.swa_page_table.tolist() == [[0, -1, -1, -1]] * 2
    assert not any(loc.any() for loc in bucket.step.out_cache_loc.in_order())
    assert all(torch.equal(rows, table[:1].expand(8, -1)) for rows, table in zip(
        bucket.token_rope["main"], (cos, sin), strict=True))  # fmt: skip


def test_padding_writes_only_the_dummy_slot():
    """5 blocks of 16, one real row, three padded, and a step that writes one byte pattern a token."""
    tables = make_tables(16, pages=4)
    alloc = KVAllocator(tables.layout, tables)
    alloc.alloc_extend([2], [0], [17])
    slot = alloc.alloc_decode([2], [18]).out_swa_loc.item()
    bucket = VerifyBucket(tables, BucketShape(4, 1), *rope(64))
    bucket.fill([2], [17])
    bucket.refresh()
    cache = torch.full((5 * 16, 8), 0x55, dtype=torch.uint8)
    cache[bucket.step.out_cache_loc.out_swa_loc.long()] = torch.arange(4, dtype=torch.uint8)[:, None].expand(4, 8)
    untouched = torch.ones(5 * 16, dtype=torch.bool)
    untouched[[0, slot]] = False
    assert slot == 2 * 16 + 1
    assert (cache[untouched] == 0x55).all()
    assert (cache[slot] == 0).all()


def test_a_draft_step_takes_every_third_slot():
    a0, a1, a2, b0, b1, b2 = range(21, 27)
    draft = MultiStepDraft(make_tables(16), 2, 3, *rope(64), reserved=True)
    lengths = torch.tensor([5, 6])
    reserved = torch.tensor([a0, a1, a2, b0, b1, b2], dtype=torch.int32)
    steps = draft.prepare(lengths, reservation=reserved)
    assert [step.out_cache_loc.out_swa_loc.tolist() for step in steps] == [[a0, b0], [a1, b1], [a2, b2]]
    assert [step.out_cache_loc.out_c4_loc.numel() + step.out_cache_loc.out_c128_loc.numel() for step in steps] == [
        0
    ] * 3
    assert lengths.tolist() == [5, 6] and reserved.tolist() == [a0, a1, a2, b0, b1, b2]

"""Bundles of a verify, slots of draft steps and RoPE rows: SGLang's own beside the plug-in's."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from dsv4_npu_ops.engines.hooks import version_tuple
from dsv4_npu_ops.engines.sglang import bundle, drafts, rope
from engines.sglang.test_graphs import bundle_of, world_of
from engines.sglang.world import SIX_TABLES, VERSION, DraftBackend, OutCacheLoc, sgl

FIELDS = ("out_full_loc", "out_swa_loc", "out_c4_loc", "out_c128_loc")


def batch_of(world, rows, width, dtype):
    starts = [world.lengths[row] for row in rows]
    parts = bundle_of(world, rows, starts, width)
    return SimpleNamespace(
        req_to_token_pool=world.pool,
        token_to_kv_pool_allocator=world.allocator,
        out_cache_loc_dsv4=parts,
        out_cache_loc=parts.out_full_loc.to(dtype),
        req_pool_indices=world.tensor(rows, torch.int64),
        req_pool_indices_cpu=torch.tensor(rows),
        seq_lens=world.tensor(starts, torch.int64),
        seq_lens_cpu=torch.tensor(starts),
    )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", range(1, 9))
def test_verify_bundles_equal_sglangs(width, dtype):
    draws, world = world_of(width + 20, width)
    for count in (1, 3, 8):
        batch = batch_of(world, draws.sample(range(1, 9), count), width, dtype)
        options = {}
        if draws.random() < 0.5 and not SIX_TABLES:
            options["live_seq_lens_cpu"] = batch.seq_lens_cpu.clone()
            batch.seq_lens_cpu = batch.seq_lens_cpu + width
        build = bundle.build_verify_bundle_of_six if SIX_TABLES else bundle.build_verify_bundle
        theirs = sgl.hooks.maybe_build_dsv4_verify_bundle(batch, width, **options)
        ours = build(None, batch, width, **options)
        for name in FIELDS + ("out_c4_state_loc", "out_c128_state_loc") * SIX_TABLES:
            assert getattr(theirs, name).tolist() == getattr(ours, name).tolist(), name
        for name in () if SIX_TABLES else FIELDS[:3]:
            assert getattr(theirs, name).dtype == getattr(ours, name).dtype, name


def test_a_batch_without_a_reservation_has_no_bundle():
    _, world = world_of(3, 4)
    batch = batch_of(world, [1], 4, torch.int32)
    batch.out_cache_loc_dsv4 = None
    assert bundle.build_verify_bundle(None, batch, 4) is None


@pytest.mark.skipif(version_tuple(VERSION) < (0, 5, 20), reason="steps had slots of groups then")
@pytest.mark.parametrize("topk", [1, 3])
@pytest.mark.parametrize("spare", [0, 1])
def test_slots_of_draft_steps_equal_sglangs(topk, spare):
    rows, steps = 5, 4
    slots = torch.arange(1, 1 + (rows - spare) * topk * steps, dtype=torch.int32)
    held = OutCacheLoc(out_full_loc=slots, out_swa_loc=slots.long() + 1000, out_c4_loc=slots[:2], out_c128_loc=None)
    backend = DraftBackend.__new__(DraftBackend)
    backend.topk, backend.speculative_num_steps = topk, steps
    batch = SimpleNamespace(batch_size=rows, out_cache_loc_dsv4=held, out_cache_loc=slots, spec_info=object())
    theirs, ours = {}, {}
    backend.common_template(batch, lambda i, b: theirs.update({i: backend._step_out_cache_loc_dsv4(b, i)}))

    def by_step(i, b):
        ours[i] = drafts.step_out_cache_loc_dsv4(DraftBackend._step_out_cache_loc_dsv4, backend, b, i)

    drafts.common_template(DraftBackend.common_template, backend, batch, by_step)
    assert theirs.keys() == ours.keys() == set(range(steps - 1))
    for step in theirs:
        for name in FIELDS:
            expected, given = getattr(theirs[step], name), getattr(ours[step], name)
            assert (expected is None) == (given is None) and (expected is None or expected.tolist() == given.tolist())
    assert not hasattr(backend, drafts._BY_STEP)
    once = partial(drafts.common_template, DraftBackend.common_template)
    drafts.common_template(once, backend, batch, by_step)  # registered twice


@pytest.mark.skipif(not hasattr(sgl, "rope"), reason="RoPE rows are gathered elsewhere then")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"view_4d": True}, {"inverse": True}, {"cache_dtype": torch.float32}])
def test_rope_rows_equal_sglangs(dtype, options):
    freqs = torch.polar(torch.ones(300, 32), torch.rand(300, 32))
    table = sgl.rope.Dsv4NpuRoPE(freqs)
    positions = torch.randint(0, 300, (17,))
    theirs = table.get_cos_sin(positions, dtype, **options)
    ours = rope.get_cos_sin(None, table, positions, dtype, **options)
    for expected, given in zip(theirs, ours, strict=True):
        assert expected.dtype == given.dtype and torch.equal(expected, given)

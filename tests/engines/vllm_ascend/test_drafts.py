"""What a drafter prepares: vLLM-Ascend's own beside the plug-in's."""

import random
from contextlib import nullcontext

import pytest
import torch

from dsv4_npu_ops.engines import hooks
from engines.vllm_ascend.proposers import EAGER, FULL, Round, drafted_batch, pad, proposer_of, run_stack
from engines.vllm_ascend.world import Limits, World, cann, differences, never, ours, snapshot, va


@pytest.fixture(autouse=True)
def _no_fallback(monkeypatch):
    monkeypatch.setattr(hooks, "say_once", never)


def without_padding(step, rows):
    """RoPE rows of the entries behind the requests mean nothing."""
    rope = {key: value[:rows] for key, value in step["cos"].items()}, {k: v[:rows] for k, v in step["sin"].items()}
    return step | {"cos": rope[0], "sin": rope[1]}


@pytest.mark.parametrize("is_a5", (False, True))
@pytest.mark.parametrize("near_the_end", (False, True))
@pytest.mark.parametrize("mode", (EAGER, FULL))
@pytest.mark.parametrize("seed", range(6))
def test_steps_of_a_draft(mode, near_the_end, is_a5, seed, monkeypatch):
    if is_a5:
        monkeypatch.setattr(va.dsa, "DeviceOperator", va.device_op.A5DeviceAdaptor)
        monkeypatch.setattr(va.dsa, "get_ascend_device_type", lambda: va.dsa.AscendDeviceType.A5)
    draws = random.Random(seed)
    limits = Limits(drafts=draws.randint(2, 5))
    worlds = World(seed, limits), World(seed, limits)
    both = proposer_of(worlds[0]), proposer_of(worlds[1])
    for _ in range(3):
        common, kept = drafted_batch(draws, worlds[0], near_the_end=near_the_end)
        rows = common.num_reqs
        entries = rows + draws.randint(0, limits.rows - rows)
        if mode is FULL:
            pad(both[0], common, draws.randint(rows, entries))
        cann.calls.clear()
        theirs = [snapshot(step) for step in run_stack(both[0], common, kept, entries, mode)]
        their_calls = list(cann.calls)
        cann.calls.clear()
        for buffer in spec_rope_buffers():  # which both drafters share
            buffer.fill_(-7)
        with ours():
            mine = [snapshot(step) for step in run_stack(both[1], common, kept, entries, mode)]
        for d, (a, b) in enumerate(zip(theirs, mine, strict=True)):
            assert not list(differences(without_padding(a, rows), without_padding(b, rows), f"step {d}"))
        assert cann.calls == their_calls
        if mode is FULL:
            assert_published(both, mine, rows, entries)


def spec_rope_buffers():
    """Where captured graphs read RoPE rows of drafts: cosines and sines by step, of every table and group."""
    kept = va.rope._ROPE_STATE.spec_runtime_buffer
    return [buffer for groups in kept.values() for pair in groups.values() for of_steps in pair for buffer in of_steps]


def assert_published(both, steps, rows, entries):
    """Steps stand where a captured graph reads them. Behind that lies what a larger draft has left."""
    lists = [
        (
            drafter.seq_lens_group[1:],
            drafter.query_start_loc_group[1:],
            builder.spec_slot_mapping,
            builder.spec_sas_metadata,
        )
        for drafter in both
        for builder in [drafter.draft_attn_groups[0].get_metadata_builder()]
    ]
    for theirs, ours_, read in zip(*lists, (entries, entries + 1, entries, 1024), strict=True):
        assert all(torch.equal(a[:read], b[:read]) for a, b in zip(theirs, ours_, strict=True))
    buffers = va.rope._ROPE_STATE.spec_runtime_buffer
    for d, step in enumerate(steps):
        for name, i in (("cos", 0), ("sin", 1)):
            for (key, group), values in step[name].items():
                assert torch.equal(buffers[key][group][i][d][:rows], values[:rows])


def test_a_builder_that_takes_the_place_of_another_has_its_own_buffers():
    """As when the engine makes the builders of a group again."""
    world = World(1, Limits(drafts=3))
    drafter, (common, kept) = proposer_of(world), drafted_batch(random.Random(1), world, rows=4)
    (group,) = drafter.draft_attn_groups
    with ours():
        run_stack(drafter, common, kept, 6, FULL)
        group.builder = world.builder(group.kv_cache_spec)
        steps = run_stack(drafter, common, kept, 6, FULL)
    for step, slots, attention in zip(
        steps, group.builder.spec_slot_mapping, group.builder.spec_sas_metadata, strict=False
    ):
        assert step.decode.slot_mapping.data_ptr() == slots.data_ptr()
        assert step.decode.sas_metadata is attention


def third_base(world, drafter):
    va.rope.ComplexExpRotaryEmbedding(world.config, "mtp.0.attn", 8, 8, 1100, 999, 1, rope_groups=["default"])


def blocks_of_96(world, drafter):
    drafter.block_size = drafter.draft_attn_groups[0].get_metadata_builder().block_size = 96


def longer_sequences(world, drafter):
    drafter.max_model_len = 1 << 20


def another_model(world, drafter):
    world.config.model_config.hf_config.model_type = "another"


@pytest.mark.parametrize(
    "change, reason",
    [
        (third_base, "RoPE tables of none or more than two bases"),
        (blocks_of_96, "blocks of 96 slots, which is no power of two"),
        (longer_sequences, "and sequences of 1048576"),
        (another_model, "drafts of another model"),
    ],
)
def test_drafts_that_are_not_known_are_the_engines_own(change, reason, monkeypatch):
    said, results = [], []
    monkeypatch.setattr(hooks, "say_once", said.append)
    for with_ours in (False, True):
        world = World(2, Limits(drafts=4))
        drafter, (common, kept) = proposer_of(world), drafted_batch(random.Random(2), world)
        change(world, drafter)
        with ours() if with_ours else nullcontext():
            results.append([snapshot(step) for step in run_stack(drafter, common, kept, common.num_reqs, EAGER)])
    assert not list(differences(*results))
    assert len(said) == 1 and reason in said[0]


@pytest.mark.parametrize("seed", range(40))
def test_next_tokens_counts_indices_and_rejected_tokens(seed):
    draws = random.Random(seed)
    world = World(seed, Limits(drafts=draws.randint(1, 5)))
    drafter, round_of = proposer_of(world), Round.draw(draws, world)
    round_of.samples = round_of.samples.to(draws.choice((torch.int32, torch.int64)))
    theirs = [snapshot(value) for value in round_of.run(drafter)]
    with ours():
        mine = [snapshot(value) for value in round_of.run(drafter)]
    # Sums of booleans are int64, and so is what the engine makes of them.
    theirs, mine = ([v.long() if torch.is_tensor(v) else v for v in values] for values in (theirs, mine))
    assert not list(differences(theirs, mine))

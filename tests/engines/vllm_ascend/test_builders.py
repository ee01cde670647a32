"""Metadata of random steps: vLLM-Ascend's own builders beside the plug-in's."""

import random
from types import SimpleNamespace

import pytest
import torch

from dsv4_npu_ops.engines import hooks
from dsv4_npu_ops.engines.vllm_ascend import builders, runner, step
from engines.vllm_ascend.world import GROUPS, Row, World, cann, differences, never, ours, random_batch, snapshot, va


@pytest.fixture(autouse=True)
def _no_fallback(monkeypatch):
    monkeypatch.setattr(hooks, "say_once", never)
    monkeypatch.setattr(runner, "say_once", never)


def build(world, batch, **options):
    world.begin(batch)
    cann.calls.clear()
    by_layer, drafts = world.metadata(batch, **options)
    return {name: snapshot(metadata) for name, metadata in by_layer.items()}, list(cann.calls), drafts


@pytest.mark.parametrize("kind", ("mixed", "decodes", "padded"))
@pytest.mark.parametrize("seed", range(12))
def test_every_field_of_every_builder_is_the_engines(kind, seed):
    draws = random.Random(f"{kind} {seed}")
    worlds = World(seed), World(seed)
    for _ in range(3):
        batch = random_batch(draws, worlds[0].limits, prefills=kind == "mixed", padded=kind == "padded")
        theirs, their_calls, _ = build(worlds[0], batch)
        with ours():
            mine, my_calls, _ = build(worlds[1], batch)
        assert not list(differences(theirs, mine))
        assert their_calls == my_calls


@pytest.mark.parametrize("is_a5", (False, True))
@pytest.mark.parametrize("kind", ("decodes", "padded"))
@pytest.mark.parametrize("seed", range(3))
def test_steps_of_one_size_that_follow_each_other(kind, seed, is_a5, monkeypatch):
    """All that is kept of a size is there from the second on: other lengths, other widths, and objects of their own."""
    if is_a5:
        monkeypatch.setattr(va.dsa, "DeviceOperator", va.device_op.A5DeviceAdaptor)
        monkeypatch.setattr(va.dsa, "get_ascend_device_type", lambda: va.dsa.AscendDeviceType.A5)
    draws = random.Random(f"{kind} {seed}")
    groups = tuple((name, 16 if is_a5 and name == "c128_state" else block, ratio) for name, block, ratio in GROUPS)
    worlds = World(seed, groups=groups), World(seed, groups=groups)
    batch = random_batch(draws, worlds[0].limits, prefills=False, padded=kind == "padded")
    widths, made = [row.new for row in batch.rows], []
    for _ in range(4):
        draws.shuffle(widths)
        batch.rows = [Row(draws.randint(0, worlds[0].limits.length - new), new) for new in widths]
        theirs, their_calls, _ = build(worlds[0], batch)
        with ours():
            mine, my_calls, _ = build(worlds[1], batch)
            made.append(worlds[1].metadata(batch)[0]["swa.0"])
        assert not list(differences(theirs, mine))
        assert their_calls == my_calls
    for part in (lambda m: m, lambda m: m.decode, lambda m: m.query_lens):
        assert len({id(part(m)) for m in made}) == len(made)
    sizes = getattr(worlds[1].runner, step._ADOPTED).launches.sizes
    assert len(sizes) == 1


MORE_GROUPS = (*GROUPS, ("swa2", 128, 1), ("swa3", 128, 1))


@pytest.mark.parametrize("kind", ("mixed", "padded"))
@pytest.mark.parametrize("seed", range(4))
def test_more_groups_than_one_launch_knows(kind, seed):
    draws = random.Random(seed)
    worlds = World(seed, groups=MORE_GROUPS), World(seed, groups=MORE_GROUPS)
    for _ in range(2):
        batch = random_batch(draws, worlds[0].limits, prefills=kind == "mixed", padded=kind == "padded")
        theirs, _, _ = build(worlds[0], batch)
        with ours():
            mine, _, _ = build(worlds[1], batch)
        assert not list(differences(theirs, mine))


@pytest.mark.parametrize("kind", ("mixed", "decodes", "padded"))
@pytest.mark.parametrize("seed", range(4))
def test_flat_slots_and_arguments_of_a5(kind, seed, monkeypatch):
    monkeypatch.setattr(va.dsa, "DeviceOperator", va.device_op.A5DeviceAdaptor)
    monkeypatch.setattr(va.dsa, "get_ascend_device_type", lambda: va.dsa.AscendDeviceType.A5)
    draws = random.Random(seed)
    groups = tuple((name, 16 if name == "c128_state" else block, ratio) for name, block, ratio in GROUPS)
    worlds = World(seed, groups=groups), World(seed, groups=groups)
    for _ in range(3):
        batch = random_batch(draws, worlds[0].limits, prefills=kind == "mixed", padded=kind == "padded")
        theirs, their_calls, _ = build(worlds[0], batch)
        with ours():
            mine, my_calls, _ = build(worlds[1], batch)
        assert not list(differences(theirs, mine))
        assert their_calls == my_calls


@pytest.mark.parametrize("dtype", (torch.int64, torch.int32))
@pytest.mark.parametrize("seed", range(6))
def test_a_builder_outside_of_the_runners_step(seed, dtype):
    """The first pass of a draft: the drafter's own builder, on the step's batch."""
    draws = random.Random(seed)
    world = World(seed)
    both = [world.builder(SimpleNamespace(block_size=128)) for _ in range(2)]
    positions = torch.zeros(world.limits.tokens, dtype=dtype)
    for _ in range(3):
        batch = random_batch(draws, world.limits, prefills=seed % 2 == 0)
        world.begin(batch)
        common = common_of(world, batch)
        common.positions = positions.copy_(world.runner.positions)
        theirs = snapshot(draft_build(both[0], common))
        with ours():
            mine = snapshot(draft_build(both[1], common))
        assert not list(differences(theirs, mine))


def common_of(world, batch):
    runner, count = world.runner, len(batch.rows)
    table = world.tables[world.names.index("swa")]
    return va.utils.AscendCommonAttentionMetadata(
        query_start_loc=runner.query_start_loc.gpu[: count + 1],
        query_start_loc_cpu=runner.query_start_loc.cpu[: count + 1],
        seq_lens=runner.seq_lens[:count],
        _seq_lens_cpu=runner.optimistic_seq_lens_cpu[:count],
        num_reqs=count,
        num_actual_tokens=batch.tokens,
        num_input_tokens=batch.tokens,
        max_query_len=max(row.new for row in batch.rows),
        max_seq_len=0,
        block_table_tensor=table.get_device_tensor()[:count],
        slot_mapping=table.slot_mapping.gpu,
        positions=runner.positions,
    )


def draft_build(builder, common):
    return builder.build(
        0,
        common,
        None,
        prefill_ratio_to_sas_metadata={},
        decode_ratio_to_sas_metadata={},
        common_ratio_to_sas_metadata={},
        block_size=128,
    )


def test_captures_and_dummy_steps_are_the_engines_own_over_buffers_that_are_shared():
    world = World(5)
    batch = random_batch(random.Random(5), world.limits, prefills=False)
    with ours():
        build(world, batch)
        world.begin(batch)
        runner = world.runner
        count = len(batch.rows)
        captured, _ = runner._build_attention_metadata(
            num_tokens=batch.tokens, num_reqs=count, max_query_len=4, for_cudagraph_capture=True
        )
        replayed, _ = world.metadata(batch)
    for layer, made in captured.items():
        first, second = places(made.decode), places(replayed[layer].decode)
        assert first == second, f"{layer}: a graph would read other memory than a replay fills"


def places(part):
    tensors = [part.start_pos, part.sas_metadata, part.qli_metadata]
    tensors += [] if part.slot_mapping is None else [part.slot_mapping]
    tensors += [table for pair in part.cos._data.values() for table in pair["default"]]
    return [tensor.data_ptr() for tensor in tensors]


@pytest.mark.parametrize("tokens", [0, 1, 3, 9])
def test_compressed_tokens_of_a_part_are_counted_as_by_the_engine(tokens):
    """Also of one without tokens, for which an output would still have room."""
    theirs = SimpleNamespace(compressor_ratio=4, num_decode_tokens=tokens, num_decodes=2)
    count, step_kind = va.dsa.AscendDSAMetadataBuilder._num_compressor_metadata_rows, va.dsa.BUILD_METADATA_STEP_DECODE
    expected = count(theirs, step_kind, None)
    ours = SimpleNamespace(compressor_ratio=4, block_size=128)
    part = SimpleNamespace(first_row=0, rows=2, first_token=0, tokens=tokens)
    tables = SimpleNamespace(get_full_cos_and_sin_dsa=lambda name: (name, name))
    assert builders._own_fields(ours, part, torch.zeros(2, 4), tables)["num_compressed_tokens"] == expected

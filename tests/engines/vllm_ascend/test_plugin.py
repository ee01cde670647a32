"""The plug-in as vLLM loads it: by mode, version and signature, when the engine's modules are imported."""

import importlib
import logging
import pkgutil
import random
import sys

import pytest
import torch
from ascend_backend.replay import differences as record_differences
from ascend_backend.replay import load as load_record
from ascend_backend.replay import repeat

from dsv4_npu_ops.engines import hooks, patch, settings
from dsv4_npu_ops.engines import vllm_ascend as plugin
from dsv4_npu_ops.engines.vllm_ascend import compressor, rope, runner, step
from engines.vllm_ascend.proposers import EAGER, Round, drafted_batch, proposer_of, run_stack
from engines.vllm_ascend.test_compressor import layer_of, parts
from engines.vllm_ascend.world import World, differences, patch_all, random_batch, snapshot, va

BUILD = "vllm_ascend.attention.dsa_v1.AscendDSAMetadataBuilder.build"


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Loads the plug-in in a mode, and takes everything back at the end."""
    patch.undo_all()
    monkeypatch.setattr(hooks, "_said", set())
    monkeypatch.setenv("DSV4_NPU_OPS_DUMP", str(tmp_path))
    monkeypatch.setattr(plugin, "installed_version", lambda: "0.23.0")

    def load(mode=None):
        if mode is not None:
            monkeypatch.setenv("DSV4_NPU_OPS_VLLM_ASCEND", mode)
        plugin.register()

    yield load
    patch.undo_all()
    monkeypatch.undo()
    patch_all()


def is_replaced(target):
    return hasattr(pkgutil.resolve_name(target), "__wrapped__")


def step_of(world, seed=1, **options):
    batch = random_batch(random.Random(seed), world.limits, **options)
    world.begin(batch)
    return batch


def test_every_hook_of_this_version_fits(load):
    assert [decision for decision in plugin.decisions() if decision.refused] == []


def test_on_replaces_functions_also_where_they_were_imported_to(load):
    original = va.rope.get_cos_and_sin_dsa
    load()
    assert all(is_replaced(decision.hook.target) for decision in plugin.decisions())
    assert va.dsa.get_cos_and_sin_dsa is va.rope.get_cos_and_sin_dsa is not original
    plugin.register()
    assert va.rope.get_cos_and_sin_dsa.__wrapped__ is original, "replaced once"
    patch.undo_all()
    assert va.dsa.get_cos_and_sin_dsa is va.rope.get_cos_and_sin_dsa is original


def test_on_runs_our_ops(load, monkeypatch):
    load("on")
    world, launches = World(1), []
    bind = step.bind_step

    def counted(*args, **kwargs):
        call = bind(*args, **kwargs)
        return lambda *rows: launches.append(1) or call(*rows)

    monkeypatch.setattr(step, "bind_step", counted)
    world.metadata(step_of(world))
    assert len(launches) == 1


def test_off_and_a_machine_without_the_engine_change_nothing(load, monkeypatch):
    load("off")
    monkeypatch.setattr(plugin, "installed_version", lambda: None)
    load("on")
    assert not any(is_replaced(hook.target) for hook in plugin.all_hooks())


def test_another_mode_is_refused(load):
    with pytest.raises(ValueError, match="DSV4_NPU_OPS_VLLM_ASCEND is 'maybe', expected one of off, on, shadow"):
        load("maybe")


def test_an_empty_variable_is_one_that_is_not_set(load, monkeypatch):
    monkeypatch.setenv("DSV4_NPU_OPS_DUMP", "")
    monkeypatch.setenv("DSV4_NPU_OPS_VLLM_ASCEND_ROPE", "")
    load("")
    assert is_replaced(BUILD) and settings.dump_folder() == "dsv4_npu_ops_differences"
    assert not rope.wants_deepseeks_tables()


def test_an_unknown_version_leaves_the_engine_as_it_is_and_says_so(load, monkeypatch, caplog):
    monkeypatch.setattr(plugin, "installed_version", lambda: "0.24.0rc1")
    with caplog.at_level(logging.WARNING):
        load()
    assert not any(is_replaced(hook.target) for hook in plugin.all_hooks())
    assert "AscendDSAMetadataBuilder.build is vLLM-Ascend's own: known from 0.23.0 to 0.23.0, not in 0.24.0rc1" in (
        caplog.text
    )


def test_a_changed_signature_leaves_that_function_as_it_is_and_names_it(load, monkeypatch, caplog):
    monkeypatch.setattr(va.dsa.AscendDSAMetadataBuilder, "build", lambda self, step: None)
    with caplog.at_level(logging.WARNING):
        load()
    assert "AscendDSAMetadataBuilder.build is vLLM-Ascend's own: takes (self, step), expected (" in caplog.text
    assert not is_replaced(BUILD) and is_replaced(runner.HOOKS[0].target)


def test_a_module_that_cannot_be_imported_is_a_reason(monkeypatch, tmp_path):
    (tmp_path / "a_broken_engine.py").write_text("raise RuntimeError('no library')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    hook = hooks.Hook("a_broken_engine.function", lambda original, a: a, "0.23.0", "0.23.0")
    assert hooks.decide([hook], "0.23.0") == [hooks.Decision(hook, "not found (no library)")]


def test_modules_are_not_imported_and_replaced_when_they_are(load, monkeypatch, tmp_path):
    (tmp_path / "an_engine.py").write_text("def function(a):\n    return a\n")
    (tmp_path / "its_user.py").write_text("from an_engine import function\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    hook = hooks.Hook("an_engine.function", lambda original, a: -original(a), "0.23.0", "0.23.0")
    monkeypatch.setattr(plugin, "all_hooks", lambda: (hook,))
    load()
    assert "an_engine" not in sys.modules
    user, engine = importlib.import_module("its_user"), importlib.import_module("an_engine")
    try:
        assert user.function(3) == engine.function(3) == -3
        assert engine.__spec__.loader is engine.__loader__ and engine.__file__ == str(tmp_path / "an_engine.py")
        patch.undo_all()
        assert user.function(3) == engine.function(3) == 3
    finally:
        del sys.modules["an_engine"], sys.modules["its_user"]


def test_another_model_is_the_engines(load, caplog):
    load()
    world = World(2)
    batch = step_of(world)
    expected = {name: snapshot(metadata) for name, metadata in world.metadata(batch)[0].items()}
    world.config.model_config.hf_config.model_type = "another"
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            world.begin(batch)
            given = {name: snapshot(metadata) for name, metadata in world.metadata(batch)[0].items()}
    assert not list(differences(expected, given))
    assert caplog.text.count("build is the engine's own for calls like this: another model than DeepSeek-V4") == 1


def test_an_unexpected_step_is_the_engines_and_said_once(load, caplog):
    world = World(3)
    batch = step_of(world)
    expected = {name: snapshot(metadata) for name, metadata in world.metadata(batch)[0].items()}
    load()
    world.runner.attn_groups[2][0].kv_cache_spec.block_size = 64
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            world.begin(batch)
            given, _ = world.metadata(batch)
    assert caplog.text.count("blocks of [64] slots and a table for blocks of 128") == 1
    start = {name: value["decode"]["start_pos"] for name, value in expected.items() if value["decode"]}
    assert all(torch.equal(start[name], given[name].decode.start_pos) for name in start)


def test_shadow_changes_nothing_and_finds_nothing(load, caplog, tmp_path):
    world = World(4)
    batch = step_of(world)
    expected = {name: snapshot(metadata) for name, metadata in world.metadata(batch)[0].items()}
    drafter = proposer_of(world)
    common, kept = drafted_batch(random.Random(4), world)
    drafts = [snapshot(made) for made in run_stack(drafter, common, kept, common.num_reqs, EAGER)]
    with caplog.at_level(logging.WARNING):
        load("shadow")
        world.begin(batch)
        by_layer, _ = world.metadata(batch)
        given = {name: snapshot(metadata) for name, metadata in by_layer.items()}
        for ratio in (4, 128):
            for part in parts(by_layer, ratio):
                layer_of(ratio)._compute_compressor_metadata(part)
        again = [snapshot(made) for made in run_stack(drafter, common, kept, common.num_reqs, EAGER)]
        drawn = Round.draw(random.Random(4), world)
        drafter.prepare_next_token_ids_padded(
            drawn.samples, drawn.requests, drawn.batch, drawn.discarded, len(drawn.discarded)
        )
    assert not list(differences(expected, given)) and not list(differences(drafts, again))
    assert "differs" not in caplog.text and not list(tmp_path.iterdir())


def test_shadow_says_the_first_difference_and_saves_it_for_the_replay_tool(load, caplog, tmp_path, monkeypatch):
    load("shadow")
    world = World(5)
    by_layer, _ = world.metadata(step_of(world))
    (part, *_) = parts(by_layer, 4)
    launch = compressor._launch

    def mistaken(self, metadata):
        cos, sin, slots = launch(self, metadata)
        return cos, sin, slots + 1

    monkeypatch.setattr(compressor, "_launch", mistaken)
    with caplog.at_level(logging.WARNING):
        theirs = layer_of(4)._compute_compressor_metadata(part)
        layer_of(4)._compute_compressor_metadata(part)
    message = "_compute_compressor_metadata differs from vLLM-Ascend's in slot_mapping; saved in"
    assert caplog.text.count(message) == 1
    folder = tmp_path / "_compute_compressor_metadata"
    assert torch.equal(torch.load(folder / "vllm-ascend.pt")["slot_mapping"], theirs[2])
    record = load_record(next(folder.glob("*-compressor_metadata.pt")))
    assert not record_differences(record["after"], repeat(record)) and settings.dump_folder() == str(tmp_path)


def test_a_shadow_run_of_what_is_not_known_calls_the_engine_once(load, caplog):
    """The engine's step moves its positions on: a second call would draft for other tokens."""
    world = World(6)
    drafter = proposer_of(world)
    common, kept = drafted_batch(random.Random(6), world)
    expected = [snapshot(made) for made in run_stack(drafter, common, kept, common.num_reqs, EAGER)]
    load("shadow")
    drafter.draft_attn_groups.append(drafter.draft_attn_groups[0])  # as drafters of other layers have it
    with caplog.at_level(logging.WARNING):
        given = [snapshot(made) for made in run_stack(drafter, common, kept, common.num_reqs, EAGER)]
    assert not list(differences(expected, given))
    assert caplog.text.count("drafts of other layers than DeepSeek-V4's MTP layer") == 1


def test_a_shadow_run_that_cannot_compare_or_save_leaves_the_engine_alone(load, caplog, tmp_path, monkeypatch):
    load("shadow")
    world = World(7)
    by_layer, _ = world.metadata(step_of(world))
    (part, *_) = parts(by_layer, 4)
    (tmp_path / "a_file").touch()
    monkeypatch.setenv("DSV4_NPU_OPS_DUMP", str(tmp_path / "a_file"))  # no folder can be made there
    launch = compressor._launch

    def mistaken(self, metadata):
        cos, sin, slots = launch(self, metadata)
        return cos, sin, slots + 1

    def failing(self, metadata):
        raise AttributeError("nothing of that name")

    with caplog.at_level(logging.WARNING):
        for ours in (mistaken, failing):
            monkeypatch.setattr(compressor, "_launch", ours)
            for _ in range(2):
                assert layer_of(4)._compute_compressor_metadata(part) is not None
    assert caplog.text.count("_compute_compressor_metadata differs from vLLM-Ascend's in slot_mapping; not saved") == 1
    assert caplog.text.count("_compute_compressor_metadata was not compared: AttributeError: nothing of that name") == 1


def test_what_the_engine_raises_in_a_shadow_run_is_the_engines(load, monkeypatch):
    calls = []

    def fails(self, metadata):
        calls.append(metadata)
        raise RuntimeError("the engine's own")

    monkeypatch.setattr(va.dsa.AscendDSAImpl, "_compute_compressor_metadata", fails)
    load("shadow")
    with pytest.raises(RuntimeError, match="the engine's own"):
        layer_of(4)._compute_compressor_metadata(None)
    assert calls == [None]

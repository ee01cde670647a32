"""The plug-in as SGLang loads it: through its registry, by mode, version and signature."""

import logging
import pkgutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from ascend_backend.replay import differences, repeat
from ascend_backend.replay import load as load_record

from dsv4_npu_ops.engines import hooks, settings
from dsv4_npu_ops.engines import sglang as plugin
from dsv4_npu_ops.engines.sglang import eager, step_call, versions
from engines.sglang import test_bundle, test_eager
from engines.sglang.test_graphs import world_of
from engines.sglang.world import ForwardMode, backend_of, sgl

plugins = __import__("sglang.srt.plugins", fromlist=["x"])
registry = __import__("sglang.srt.plugins.hook_registry", fromlist=["x"])


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Loads the plug-in in a mode, and takes everything back at the end."""
    targets = [decision.hook.target for decision in plugin.decisions() if decision.refused is None]
    originals = {target: pkgutil.resolve_name(target) for target in targets}
    monkeypatch.setattr(hooks, "_said", set())
    monkeypatch.setenv("DSV4_NPU_OPS_DUMP", str(tmp_path))
    monkeypatch.setattr(sys.modules["sglang.srt.utils"], "is_npu", lambda: True)
    registry.HookRegistry.reset()

    def load(mode=None):
        if mode is not None:
            monkeypatch.setenv("DSV4_NPU_OPS_SGLANG", mode)
        monkeypatch.setattr(plugins, "_plugins_loaded", False)
        plugins.load_plugins()  # SGLang's own: by the entry point

    yield load
    versions.installed.cache_clear()  # a test may have said another version
    registry.HookRegistry.reset()
    for target, original in originals.items():
        owner, _, name = target.rpartition(".")
        patched = pkgutil.resolve_name(target)
        setattr(pkgutil.resolve_name(owner), name, original)
        for module in list(sys.modules.values()):
            for attribute, value in list(vars(module).items()) if hasattr(module, "__dict__") else []:
                if value is patched and patched is not original:
                    setattr(module, attribute, original)


def is_replaced(target):
    try:
        return hasattr(pkgutil.resolve_name(target), "__wrapped__")
    except (AttributeError, ImportError):  # not in this version
        return False


def verify_of(world, rows, width):
    starts = [world.lengths[row] for row in rows]
    batch = test_eager.batch_of(world, ForwardMode.TARGET_VERIFY, rows, starts, [width] * len(rows))
    backend = backend_of(world)
    backend.forward_metadata = sgl.ascend.ForwardMetadata()
    offsets = list(range(0, len(rows) * width + 1, width))
    backend.forward_metadata.actual_seq_lengths_q_pa = world.tensor(offsets, torch.int32)
    backend.forward_metadata.seq_lens_cpu_int = batch.seq_lens_cpu.int() + width
    return backend, batch


def test_every_hook_of_this_version_fits():
    refused = {decision.hook.name: decision.refused for decision in plugin.decisions() if decision.refused}
    assert all("known from" in reason for reason in refused.values()), refused


def test_every_function_stands_in_the_docs():
    page = (Path(__file__).parents[3] / "docs/sglang.md").read_text()
    names = {hook.target.rpartition(".")[2] for hook in plugin.all_hooks()} - {
        "common_template",
        "_step_out_cache_loc_dsv4",
    }
    assert not [name for name in names if name not in page]


def test_no_function_is_replaced_twice():
    targets = [decision.hook.target for decision in plugin.decisions()]
    assert len(targets) == len(set(targets))


def test_on_runs_our_ops(load, monkeypatch):
    load()
    assert all(is_replaced(d.hook.target) for d in plugin.decisions() if d.refused is None)
    calls, run = [], step_call.NewStep.run
    monkeypatch.setattr(step_call.NewStep, "run", lambda *a, **named: calls.append(a) or run(*a, **named))
    _, world = world_of(2, 4)
    backend, batch = verify_of(world, [1, 2], 4)
    backend._build_npu_compress_metadata(batch)
    assert len(calls) == 1


def test_off_and_a_machine_without_an_npu_change_nothing(load, monkeypatch):
    load("off")
    assert not any(is_replaced(decision.hook.target) for decision in plugin.decisions())
    monkeypatch.setattr(sys.modules["sglang.srt.utils"], "is_npu", lambda: False)
    load("on")
    assert not any(is_replaced(decision.hook.target) for decision in plugin.decisions())


def test_another_mode_is_said_by_sglang_and_changes_nothing(load, caplog):
    with caplog.at_level(logging.ERROR):
        load("maybe")
    assert "DSV4_NPU_OPS_SGLANG is 'maybe', expected one of off, on, shadow" in caplog.text
    assert not any(is_replaced(decision.hook.target) for decision in plugin.decisions())


def test_an_unknown_version_leaves_sglang_as_it_is_and_says_so(load, monkeypatch, caplog):
    monkeypatch.setattr(sys.modules["sglang"], "__version__", "0.6.0")
    with caplog.at_level(logging.WARNING):
        load()
    assert not any(is_replaced(decision.hook.target) for decision in plugin.decisions())
    assert "_build_npu_compress_metadata is SGLang's own: known from 0.5.15 to 0.5.23, not in 0.6.0" in caplog.text


def test_a_changed_signature_leaves_that_function_as_it_is_and_names_it(load, monkeypatch, caplog):
    monkeypatch.setattr(sgl.hooks, "maybe_build_dsv4_verify_bundle", lambda batch, number, extra=None: None)
    with caplog.at_level(logging.WARNING):
        load()
    assert "maybe_build_dsv4_verify_bundle is SGLang's own: takes (batch, number, extra=None)" in caplog.text
    assert not is_replaced("sglang.srt.hardware_backend.npu.dsv4.dsv4_common_hooks.maybe_build_dsv4_verify_bundle")
    assert is_replaced(eager.HOOKS[0].target)


def test_an_unexpected_argument_is_the_engines_for_that_call_and_said_once(load, caplog):
    load()
    _, world = world_of(3, 4)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            backend, batch = verify_of(world, [1, 2], 4)
            backend.forward_metadata.seq_lens_cpu_int = batch.seq_lens_cpu = None
            with pytest.raises(TypeError):  # SGLang's own function needs them as well
                backend._build_npu_compress_metadata(batch)
    assert caplog.text.count("_build_npu_compress_metadata is the engine's own for calls like this") == 1


def test_shadow_changes_nothing_and_finds_nothing(load, caplog, tmp_path):
    _, world = world_of(4, 4)
    backend, batch = verify_of(world, [1, 2, 5], 4)
    backend._build_npu_compress_metadata(batch)
    expected = {name: value for name, value in vars(backend.forward_metadata).items() if torch.is_tensor(value)}
    with caplog.at_level(logging.WARNING):
        load("shadow")
        backend, batch = verify_of(world, [1, 2, 5], 4)
        backend._build_npu_compress_metadata(batch)
        bundle_batch = test_bundle.batch_of(world, [1, 2], 4, torch.int32)
        assert sgl.hooks.maybe_build_dsv4_verify_bundle(bundle_batch, 4) is not None
    assert all(torch.equal(value, getattr(backend.forward_metadata, name)) for name, value in expected.items())
    assert "differs" not in caplog.text and not list(tmp_path.iterdir())


def test_shadow_says_the_first_difference_and_saves_it_for_the_replay_tool(load, caplog, tmp_path, monkeypatch):
    load("shadow")
    _, world = world_of(5, 4)
    backend, batch = verify_of(world, [1, 2, 5], 4)
    wrong = SimpleNamespace(start_pos=None)
    publish = eager._EagerStep.publish

    def mistaken(step, metadata, buffers):
        publish(step, metadata, buffers)
        metadata.start_pos = metadata.start_pos + 1
        wrong.start_pos = metadata.start_pos

    monkeypatch.setattr(eager._EagerStep, "publish", mistaken)
    with caplog.at_level(logging.WARNING):
        backend._build_npu_compress_metadata(batch)
        backend._build_npu_compress_metadata(batch)
    assert caplog.text.count("_build_npu_compress_metadata differs from SGLang's in start_pos; saved in") == 1
    folder = tmp_path / "_build_npu_compress_metadata"
    theirs = torch.load(folder / "sglang.pt")
    assert theirs["start_pos"].tolist() == backend.forward_metadata.start_pos.tolist()
    assert len(list(folder.glob("*-step.pt"))) == 1
    record = load_record(next(folder.glob("*-step.pt")))
    assert not differences(record["after"], repeat(record)) and settings.dump_folder() == str(tmp_path)

"""Metadata of random steps: vLLM-Ascend's own builders beside the plug-in's."""

import random

import pytest

from dsv4_npu_ops.engines import hooks
from dsv4_npu_ops.engines.vllm_ascend import runner
from engines.vllm_ascend.world import World, cann, differences, never, ours, random_batch, snapshot


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

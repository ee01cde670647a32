"""Calls of the compressors' metadata op by the layers: once a ratio and part of a step, with the engine's results."""

import random

import pytest
import torch

from dsv4_npu_ops import compressor_metadata
from dsv4_npu_ops.engines.vllm_ascend import compressor
from dsv4_npu_ops.graph_capture import graph_capture
from engines.vllm_ascend.world import World, cann, differences, ours, random_batch, snapshot, va


def layer_of(ratio):
    self = va.dsa.AscendDSAImpl.__new__(va.dsa.AscendDSAImpl)
    self.compress_ratio = ratio
    return self


def parts(by_layer, ratio):
    """Metadata that layers of a ratio are given: attention's and, with ratio 4, the indexer's."""
    return [
        part
        for name, metadata in by_layer.items()
        if name.partition(".")[0] == f"c{ratio}"
        for part in (metadata.prefill, metadata.decode)
        if part is not None
    ]


@pytest.fixture
def launches(monkeypatch):
    made = []

    def counted(*args, **kwargs):
        made.append(args)
        return compressor_metadata(*args, **kwargs)

    monkeypatch.setattr(compressor, "compressor_metadata", counted)
    return made


@pytest.mark.parametrize("kind", ("mixed", "decodes", "padded"))
@pytest.mark.parametrize("seed", range(8))
def test_results_are_the_engines_and_made_once(kind, seed, launches):
    draws = random.Random(f"{kind} {seed}")
    world = World(seed)
    for _ in range(3):
        batch = random_batch(draws, world.limits, prefills=kind == "mixed", padded=kind == "padded")
        world.begin(batch)
        theirs, _ = world.metadata(batch)
        expected = {
            r: [snapshot(layer_of(r)._compute_compressor_metadata(p)) for p in parts(theirs, r)] for r in (4, 128)
        }
        with ours():
            world.begin(batch)
            mine, _ = world.metadata(batch)
            launches.clear()
            for _layer in range(20):
                for ratio in (4, 128):
                    given = [snapshot(layer_of(ratio)._compute_compressor_metadata(p)) for p in parts(mine, ratio)]
                    assert not list(differences(expected[ratio], given))
        both = (
            any(row.new > world.limits.drafts + 1 for row in batch.rows)
            and batch.rows[0].new <= world.limits.drafts + 1
        )
        assert len(launches) == (4 if both else 2)


def test_other_inputs_and_captures_have_launches_of_their_own(launches):
    world = World(3)
    batch = random_batch(random.Random(3), world.limits, prefills=False)
    with ours():
        world.begin(batch)
        by_layer, _ = world.metadata(batch)
        (first, *_), layer = parts(by_layer, 4), layer_of(4)
        before = layer._compute_compressor_metadata(first)
        assert layer._compute_compressor_metadata(first)[0] is before[0]
        with graph_capture():
            captured = layer._compute_compressor_metadata(first)
            assert layer._compute_compressor_metadata(first)[0] is captured[0]
        first.start_pos = first.start_pos.clone()
        layer._compute_compressor_metadata(first)
        assert len(launches) == 3 and captured[0] is not before[0]
        world.begin(batch)
        again, _ = world.metadata(batch)
        layer._compute_compressor_metadata(parts(again, 4)[0])
        assert len(launches) == 4


def test_metadata_that_the_engine_built_serve_too(launches):
    world = World(4)
    batch = random_batch(random.Random(4), world.limits, prefills=False)
    world.begin(batch)
    by_layer, _ = world.metadata(batch)
    (part, *_) = parts(by_layer, 128)
    expected = snapshot(layer_of(128)._compute_compressor_metadata(part))
    with ours():
        assert not list(differences(expected, snapshot(layer_of(128)._compute_compressor_metadata(part))))
    assert len(launches) == 1


# offsets, starts, block table, block size, ratio, rows, requests: flat slots. By hand, from the rule of the op.
CALLS = {
    "a group ends in each request": ([0, 4, 8], [0, 4], [[5], [7]], 4, 4, 4, 2, [20, 29, -1, -1]),
    "nothing ends": ([0, 1, 2], [0, 5], [[5], [7]], 4, 4, 2, 2, [-1, -1]),
    "a start inside a group": ([0, 3], [5], [[5]], 4, 4, 2, 1, [21, -1]),
    "groups over two blocks": ([0, 24], [0], [[2, 9]], 4, 4, 7, 1, [8, 9, 10, 11, 36, 37, -1]),
    "block 0 is an ordinary block": ([0, 4], [0], [[0]], 8, 4, 2, 1, [0, -1]),
    "a negative block": ([0, 4, 8], [0, 0], [[-1], [3]], 8, 4, 3, 2, [-1, 24, -1]),
    "a block behind the table": ([0, 8], [12], [[3]], 4, 4, 3, 1, [15, -1, -1]),
    "a negative start": ([0, 4, 8], [-4, 0], [[1], [3]], 8, 4, 2, 2, [24, -1]),
    "a request without tokens": ([0, 0, 4], [4, 0], [[1], [3]], 8, 4, 2, 2, [24, -1]),
    "requests behind the last": ([0, 4, 8], [0, 0], [[1], [3]], 8, 4, 2, 1, [8, -1]),
    "ratio 128": ([0, 2, 300], [127, 0], [[1], [3]], 2, 128, 5, 2, [2, 6, 7, -1, -1]),
    "ratio 1": ([0, 2], [3], [[1, 6]], 4, 1, 3, 1, [7, 24, -1]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("pairs", (False, True))
def test_the_op_by_value(call, pairs):
    offsets, starts, table, block, ratio, rows, requests, slots = call
    cos, sin = torch.rand(600, 4), torch.rand(600, 4)
    arguments = [torch.tensor(values, dtype=torch.int32) for values in (offsets, starts, table)]
    form = 2 if pairs else 1
    given = compressor_metadata(cos, sin, *arguments, block, form, ratio, rows, requests)
    assert given.slot_mapping.tolist() == ([[s // block, s % block] for s in slots] if pairs else slots)
    engines = cann.compressor_metadata(cos, sin, *arguments, block, form, ratio, rows, requests)
    assert torch.equal(engines[0], given.cos[:, 0, 0]) and torch.equal(engines[1], given.sin[:, 0, 0])
    assert torch.equal(engines[2], given.slot_mapping)


@pytest.mark.cpu_only
def test_more_groups_than_rows_are_refused_where_the_engine_cuts_them_off():
    cos, sin = torch.rand(64, 4), torch.rand(64, 4)
    offsets, starts, table = (torch.tensor(v, dtype=torch.int32) for v in ([0, 12], [0], [[1]]))
    engines = cann.compressor_metadata(cos, sin, offsets, starts, table, 8, 1, 4, 2, 1)
    assert engines[2].tolist() == [8, 9]
    with pytest.raises(ValueError, match="groups"):
        compressor_metadata(cos, sin, offsets, starts, table, 8, 1, 4, 2, 1)


def test_block_ids_above_what_float32_counts_are_exact():
    table = torch.tensor([[(1 << 24) + 1]], dtype=torch.int32)
    offsets, starts = torch.tensor([0, 4], dtype=torch.int32), torch.tensor([0], dtype=torch.int32)
    given = compressor_metadata(None, None, offsets, starts, table, 32, 2, 4, 1, 1)
    assert given.slot_mapping.tolist() == [[(1 << 24) + 1, 0]]
    assert int(table.float()[0, 0]) == 1 << 24

"""Static buckets and drafts on npu tensors: captured once, replayed in any order, equal to eager steps on the CPU."""

import random

import pytest
import torch
from graph.serving import CONTEXT, REQUESTS, assert_like_eager, filled_tables, rope_tables, tensors_of


def random_batch(choice, shape):
    """(request indices, committed lengths, widths), idle rows and idle batches among them."""
    rows = choice.randint(0, shape.num_rows)
    widths = [choice.randint(0, shape.width) if shape.ragged else shape.width for _ in range(rows)]
    lengths = [choice.choice([0, CONTEXT - n, choice.randint(1, CONTEXT - n)]) for n in widths]
    return [choice.randrange(REQUESTS) for _ in range(rows)], lengths, widths


def capture(body):
    graph = torch.npu.NPUGraph()
    torch.npu.synchronize()
    with torch.npu.graph(graph, stream=torch.npu.Stream()):
        body()
    return graph


def replay(sim, fill, graph):
    """One replay, as an engine does it; what was run and copied for it."""
    torch.npu.synchronize()
    sim.reset_counters()
    fill()
    graph.replay()
    torch.npu.synchronize()
    counters = sim.counters()
    unwanted = ("operator.", "copy.d2", "sync.stream", "sync.event", "malloc", "refused.")
    assert [name for name in counters if name.startswith(unwanted) and name != "malloc_host"] == []
    assert counters["copy.h2d.async"] == 1
    return {name.removeprefix("run."): count for name, count in counters.items() if name.startswith("run.")}


@pytest.mark.parametrize("seed", range(2))
def test_captured_buckets_replay_in_any_order(sim, ops, seed):
    from dsv4_npu_ops.graph import BucketShape, GraphBuckets

    choice = random.Random(seed)
    shapes = [BucketShape(1, 4), BucketShape(4, 4), BucketShape(3, 1), BucketShape(5, 5, ragged=True)]
    rope = rope_tables(0)
    token_rope = {"main": rope_tables(1, dtype=torch.bfloat16), "compress": rope_tables(0)}
    on_npu = {base: tuple(table.to("npu") for table in tables) for base, tables in token_rope.items()}
    buckets = list(GraphBuckets(filled_tables("npu"), shapes, *(table.to("npu") for table in rope), token_rope=on_npu))
    graphs = {bucket.shape: capture(bucket.refresh) for bucket in buckets}
    tables = filled_tables()
    for _ in range(30):
        bucket = choice.choice(buckets)
        batch = random_batch(choice, bucket.shape)
        widths = batch[2] if bucket.shape.ragged else None
        ran = replay(sim, lambda bucket=bucket, batch=batch, widths=widths: bucket.fill(*batch[:2], widths),
                     graphs[bucket.shape])  # fmt: skip
        assert ran == {"fill_step" if bucket.shape.ragged else "fill_uniform_step": 1}
        assert_like_eager(bucket, tables, batch, rope, token_rope)


def test_a_captured_draft_round_replays(sim, ops):
    from dsv4_npu_ops.graph import BucketShape, DraftExtend, MultiStepDraft

    choice, shape = random.Random(0), BucketShape(4, 3, ragged=True)
    rope = rope_tables(0, dtype=torch.bfloat16)

    def make(device):
        tables, on_device = filled_tables(device), [table.to(device) for table in rope]
        return DraftExtend(tables, 4, 3, *on_device), MultiStepDraft(tables, 4, 2, *on_device, pad_to=8)

    extend, draft = make("npu")
    want_extend, want_draft = make("cpu")
    graphs = capture(extend.refresh), capture(draft.prepare)
    for _ in range(4):
        batch = random_batch(choice, shape)
        assert replay(sim, lambda batch=batch: extend.fill(*batch), graphs[0]) == {"fill_step": 1}
        assert replay(sim, lambda batch=batch: draft.fill(*batch[:2]), graphs[1]) == {"draft_steps": 1}
        want_extend.fill(*batch)
        want_extend.refresh()
        want_draft.fill(*batch[:2])
        want_draft.prepare()
        for got, want in ((extend.metadata, want_extend.metadata), (draft.buffers, want_draft.buffers)):
            for name, tensor in tensors_of(want).items():
                assert torch.equal(getattr(got, name).cpu(), tensor), name
        assert torch.equal(extend.swa_slots.cpu(), want_extend.swa_slots)
        assert torch.equal(extend.cos.cpu(), want_extend.cos) and torch.equal(extend.sin.cpu(), want_extend.sin)


def test_a_captured_draft_of_a_tree_replays_with_new_slots(sim, ops):
    from dsv4_npu_ops.graph import MultiStepDraft

    cos, sin = rope_tables(0)
    draft = MultiStepDraft(filled_tables("npu"), 3, 2, cos.to("npu"), sin.to("npu"), topk=2, num_entries=9)
    graph = capture(draft.prepare)
    for lengths in ([5, 399, 9], [400], []):
        reserved = torch.randint(1, 1000, (12,), dtype=torch.int32)
        draft.reservation.copy_(reserved)
        draft.fill(range(len(lengths)), lengths)
        graph.replay()
        torch.npu.synchronize()
        want = ops.build_draft_steps(torch.tensor(lengths + [0] * (3 - len(lengths))), cos, sin, 2, topk=2,
                                     reservation=reserved, num_entries=9, max_context_len=CONTEXT)  # fmt: skip
        for name, tensor in tensors_of(want).items():
            assert torch.equal(getattr(draft.buffers, name).cpu(), tensor), name

"""A verify step that is captured once and replayed: every buffer is the CPU's, whatever the order of its branches."""

import random
from dataclasses import fields

import pytest
import torch

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
CONTEXT, ROPE_DIM = 512, 8


def filled_tables(d, device):
    """Tables of four requests that hold some page everywhere, the same on every device."""
    layout = d.KVLayout(16, 32, 4, CONTEXT, dict.fromkeys(POOLS, 64), device)
    tables = d.RequestTables(layout)
    generator = torch.Generator().manual_seed(1)
    for table in tables.op_tables:
        table.copy_(torch.randint(1, 65, table.shape, generator=generator, dtype=torch.int32))
    return tables


def rope_tables(device):
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(CONTEXT, ROPE_DIM, generator=generator).to(device) for _ in range(4)]


class Bucket:
    """Fixed rows and buffers, and a step that describes the rows twice: by single ops and by the fused one."""

    def __init__(self, d, device, num_rows, width):
        tokens = num_rows * width
        self.d, self.width = d, width
        self.tables = filled_tables(d, device)
        layout = self.tables.layout
        self.rope = rope_tables(device)
        self.requests, self.lengths = (torch.zeros(num_rows, dtype=torch.int32).to(device) for _ in range(2))
        self.fused = d.VerifyStep.empty(layout, num_rows, tokens, ROPE_DIM)
        self.bundle = d.OutCacheLoc.empty(layout, num_rows, tokens)
        self.metadata = d.CompressMetadata.empty(layout, num_rows, tokens)
        self.rows = [torch.empty(tokens, ROPE_DIM, device=device) for _ in range(4)]

    def fill(self, requests, lengths):
        self.requests.copy_(torch.tensor(requests, dtype=torch.int32))
        self.lengths.copy_(torch.tensor(lengths, dtype=torch.int32))

    def single_ops(self):
        step = (self.tables, self.requests, self.lengths, self.width)
        self.d.flatten_verify_bundle(*step, out=self.bundle)
        self.d.build_compress_metadata_verify(*step, out=self.metadata)
        self.d.rope_gather(*self.rope[:2], self.metadata.positions, out=self.rows[:2])

    def fused_op(self):
        self.d.build_verify_step(self.tables, self.requests, self.lengths, self.width, *self.rope[2:], out=self.fused)
        self.d.rope_gather(*self.rope[2:], self.fused.metadata.positions, out=self.rows[2:])

    def buffers(self):
        """Every buffer on the host, by name."""
        parts = {"bundle": self.bundle, "metadata": self.metadata, "fused": self.fused}
        parts |= {"fused.slots": self.fused.out_cache_loc, "fused.metadata": self.fused.metadata}
        named = {
            f"{part}.{field.name}": getattr(owner, field.name)
            for part, owner in parts.items()
            for field in fields(owner)
        }
        named |= {f"rows[{i}]": rows for i, rows in enumerate(self.rows)}
        return {name: value.cpu() for name, value in named.items() if isinstance(value, torch.Tensor)}


def captured(bucket):
    """The single ops on a side stream, the fused one beside them: nothing orders the two branches."""
    graph, stream, side = torch.npu.NPUGraph(), torch.npu.Stream(), torch.npu.Stream()
    torch.npu.synchronize()
    with torch.npu.graph(graph, stream=stream):
        side.wait_stream(stream)
        with torch.npu.stream(side):
            bucket.single_ops()
        bucket.fused_op()
        stream.wait_stream(side)
    return graph


def random_rows(choice, num_rows, width):
    """Live rows, padding rows that name a live request or none, and now and then an idle batch."""
    lengths = [choice.choice([0, choice.randint(1, CONTEXT - width)]) for _ in range(num_rows)]
    if choice.random() < 0.2:
        lengths = [0] * num_rows
    return [choice.randrange(4) if length else choice.choice([0, -9, 999]) for length in lengths], lengths


def assert_replay_equals(sim, graph, bucket, want, rows):
    """Replays the step over these rows: every buffer is what the CPU writes, and nothing else was run."""
    for each in (bucket, want):
        each.fill(*rows)
    want.single_ops()
    want.fused_op()
    torch.npu.synchronize()
    sim.reset_counters()
    graph.replay()
    torch.npu.synchronize()
    ran = {name: count for name, count in sim.counters().items() if name.startswith(("run.", "launch.", "copy."))}
    assert ran == {"run.fill_uniform_step": 3, "run.rope_gather": 2}
    got = bucket.buffers()
    for name, value in want.buffers().items():
        assert torch.equal(got[name], value), (rows, name)


@pytest.mark.parametrize("order", ["AS_CAPTURED", "LATEST_FIRST"])
def test_random_replays_equal_the_cpu(sim, ops, order):
    import npu_sim

    choice, num_rows, width = random.Random(order), 5, 3
    bucket, want = Bucket(ops, "npu", num_rows, width), Bucket(ops, "cpu", num_rows, width)
    graph = captured(bucket)
    sim.set_replay_order(npu_sim.ReplayOrder[order])
    for step in range(16):
        rows = random_rows(choice, num_rows, width) if step < 15 else ([0] * num_rows, [0] * num_rows)
        assert_replay_equals(sim, graph, bucket, want, rows)


def test_an_idle_replay_behind_groups_of_both_ratios(sim, ops):
    """Nothing of the groups, slots, pages and rows before is left, in any buffer."""
    bucket, want = Bucket(ops, "npu", 2, 4), Bucket(ops, "cpu", 2, 4)
    graph = captured(bucket)
    assert_replay_equals(sim, graph, bucket, want, ([2, 3], [254, 382]))
    assert bucket.metadata.positions_c128.tolist() == [128, 256]
    assert_replay_equals(sim, graph, bucket, want, ([0, 0], [0, 0]))


def test_an_idle_replay_leaves_dummies_only(sim, ops):
    """Case 22."""
    bucket = Bucket(ops, "npu", 2, 4)
    # With pages of 16, groups 1 and 2 of four tokens are the units 1 and 2 of their requests' first pages.
    for request, page in enumerate((2, 3)):
        bucket.tables.table("c4")[request, :1].copy_(torch.tensor([page], dtype=torch.int32))
    graph = captured(bucket)
    metadata = bucket.fused.metadata
    watched = {
        "c4_loc": [33, 50, 0, 0],
        "positions_c4": [4, 8, 0, 0],
        "start_pos": [6, 10],
        "seqused": [4, 4],
    }
    for requests, lengths in (([0, 1], [6, 10]), ([0, 0], [0, 0])):
        bucket.fill(requests, lengths)
        graph.replay()
        torch.npu.synchronize()
        for name, values in watched.items():
            assert getattr(metadata, name).tolist() == (values if any(lengths) else [0] * len(values)), name
            assert getattr(bucket.metadata, name).tolist() == getattr(metadata, name).tolist(), name

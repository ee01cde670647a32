"""Steps that follow from values which only the simulated NPU knows: captured, replayed, and read one step late."""

import itertools

import pytest
import torch

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
WIDTH, ROWS = 4, 3


def counted(sim, prefix):
    return {name: count for name, count in sim.counters().items() if name.startswith(prefix)}


def filled_tables(ops, device):
    """Tables of three requests that hold some page everywhere, the same on every device."""
    tables = ops.RequestTables(ops.KVLayout(16, 32, 3, 512, dict.fromkeys(POOLS, 64), device))
    generator = torch.Generator().manual_seed(1)
    for table in tables.op_tables:
        table.copy_(torch.randint(1, 65, table.shape, generator=generator, dtype=torch.int32))
    return tables


def verifies(count):
    """Accepted lengths, tokens and hidden states of several verifies; the last row is padding."""
    generator = torch.Generator().manual_seed(2)
    for _ in range(count):
        accepted = torch.randint(1, WIDTH + 1, (ROWS,), generator=generator, dtype=torch.int32)
        tokens = torch.randint(1, 1 << 40, (ROWS, WIDTH), generator=generator)
        yield accepted, tokens, torch.randn(ROWS * WIDTH, 5, 3, generator=generator).bfloat16()


def test_replays_move_lengths_on_in_place(sim, ops):
    cpu_tables, tables = filled_tables(ops, "cpu"), filled_tables(ops, "npu")
    requests, lengths = torch.tensor([2, 0, 9]), torch.tensor([126, 5, 0], dtype=torch.int32)
    on_npu = [requests.to("npu"), lengths.to("npu")]
    inputs = [values.to("npu") for values in next(verifies(1))]
    out = ops.AdvancedStep.empty(tables.layout, ROWS, seq_lens=on_npu[1], hidden_shape=(5, 3))
    cos, sin = (torch.zeros(512, 8).to("npu") for _ in range(2))
    following = ops.VerifyStep.empty(tables.layout, ROWS, ROWS * WIDTH, 8)
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, stream=torch.npu.Stream()):
        ops.advance_step(tables, *on_npu, *inputs[:2], hidden_states=inputs[2], out=out)
        ops.build_verify_step(tables, on_npu[0], out.seq_lens, WIDTH, cos, sin, out=following)
    for accepted, tokens, hidden in verifies(4):
        for buffer, values in zip(inputs, (accepted, tokens, hidden), strict=True):
            buffer.copy_(values)
        torch.npu.synchronize()
        sim.reset_counters()
        graph.replay()
        torch.npu.synchronize()
        assert counted(sim, "run.") == {"run.advance_step": 1, "run.fill_uniform_step": 1}
        assert not counted(sim, "copy.")
        want = ops.advance_step(cpu_tables, requests, lengths, accepted, tokens, hidden_states=hidden)
        lengths = want.seq_lens
        for name in ("seq_lens", "extend_lens", "token_ids", "positions", "out_full_loc", "out_swa_loc",
                     "sampled_index", "hidden_states"):  # fmt: skip
            assert torch.equal(getattr(out, name).cpu(), getattr(want, name)), name
        # The next step starts where this one ended, and the host has not been asked.
        assert torch.equal(following.metadata.start_pos.cpu(), want.seq_lens)


@pytest.mark.parametrize("mode", ["LAZY", "ASYNCHRONOUS"])
def test_advancing_is_one_launch_and_nothing_else(sim, ops, mode):
    import npu_sim

    tables, cpu_tables = filled_tables(ops, "npu"), filled_tables(ops, "cpu")
    rows = torch.tensor([2, 0, 9]), torch.tensor([126, 5, 0]), *next(verifies(1))
    on_npu = [values.to("npu") for values in rows]
    torch.npu.synchronize()
    sim.set_mode(npu_sim.Mode[mode])
    sim.reset_counters()
    got = ops.advance_step(tables, *on_npu[:4], hidden_states=on_npu[4])
    torch.npu.current_stream().npu_stream  # noqa: B018  empties torch_npu's own queue into the stream
    assert counted(sim, "launch.") == {"launch.advance_step": 1}
    assert not counted(sim, "copy.") and not counted(sim, "sync.") and not counted(sim, "operator.")
    want = ops.advance_step(cpu_tables, *rows[:4], hidden_states=rows[4])
    assert torch.equal(got.hidden_states.cpu(), want.hidden_states)
    assert got.positions.tolist() == want.positions.tolist()


def test_reading_a_step_does_not_wait_for_the_next(sim, ops):
    """Results are copied behind their step, so that what is launched later neither delays nor changes them."""
    from dsv4_npu_ops.mtp.readback import Readback

    tables = filled_tables(ops, "npu")
    requests, lengths = torch.tensor([2, 0, 9]).to("npu"), torch.tensor([126, 5, 0], dtype=torch.int32).to("npu")
    accepted, tokens, _ = (values.to("npu") for values in next(verifies(1)))
    out = ops.AdvancedStep.empty(tables.layout, ROWS, seq_lens=lengths)
    torch.npu.synchronize()
    expected = [[126, 5, 0]]
    for _ in range(3):
        expected.append([sum(pair) if pair[0] else 0 for pair in zip(expected[-1], accepted.tolist(), strict=True)])
    reads = []
    for _ in range(3):
        ops.advance_step(tables, requests, lengths, accepted, tokens, out=out)
        reads.append(Readback(lengths))
    ran = []
    for read, wanted in zip(reads, expected[1:], strict=True):
        assert read.read() == wanted
        ran.append(sim.counters()["run.advance_step"])
    assert all(earlier < later for earlier, later in itertools.pairwise(ran))

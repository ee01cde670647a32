"""The project's ops on npu tensors: the NPU sources as they are, on the simulated device."""

import pytest
import torch


def counted(sim, prefix):
    return {name: count for name, count in sim.counters().items() if name.startswith(prefix)}


@pytest.mark.parametrize("mode", ["LAZY", "ASYNCHRONOUS", "SYNCHRONOUS"])
def test_rope_gather_is_one_launch_and_nothing_else(sim, ops, mode):
    import npu_sim

    sim.set_mode(npu_sim.Mode[mode])
    cos, sin, positions = torch.randn(50, 64), torch.randn(50, 64), torch.randint(0, 50, (33,))
    on_npu = [tensor.to("npu") for tensor in (cos, sin, positions)]
    torch.npu.synchronize()
    sim.reset_counters()
    got = ops.rope_gather(*on_npu, inverse=True)
    torch.npu.current_stream().npu_stream  # noqa: B018  empties torch_npu's own queue into the stream
    assert counted(sim, "launch.") == {"launch.rope_gather": 1}
    assert not counted(sim, "copy.") and not counted(sim, "sync.") and not counted(sim, "operator.")
    assert torch.equal(got[0].cpu(), cos[positions])
    assert torch.equal(got[1].cpu(), -sin[positions])


def test_every_op_has_an_npu_kernel_of_its_own(sim, ops):
    """For an op without one, torch_npu copies npu tensors to the CPU and back."""
    of_the_host = {"extend_from_lists.needs", "npu_error_lanes", "npu_soc_versions", "payload_spans", "step_sizes"}
    of_every_device = {"empty_tensors"}  # it takes no tensor, and allocates where it is told
    names = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("dsv4_npu_ops::")}
    without = {name for name in names if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1")}
    assert len(names) > 15
    assert without == {f"dsv4_npu_ops::{name}" for name in of_the_host | of_every_device}


@pytest.mark.parametrize("cores, blocks", [(None, 40), (3, 3), (100, 64)])
def test_a_launch_has_a_block_for_each_core_that_the_device_reports(run_process, cores, blocks):
    """But at most one for each lane of the error words."""
    done = run_process(
        """
        import dsv4_npu_ops
        table, positions = torch.zeros(9, 64).to("npu"), torch.zeros(50000, dtype=torch.int64).to("npu")
        dsv4_npu_ops.rope_gather(table, table, positions)
        torch.npu.synchronize()
        print([launch["blocks"] for launch in sim.kernel_counters()])
        """,
        **({} if cores is None else {"ASCEND_DEVICE_SIM_VECTOR_CORES": str(cores)}),
    )
    assert done.stdout.splitlines() == [f"[{blocks}]"], done.stderr


def test_a_captured_gather_replays_with_new_positions(sim, ops):
    cos, sin = torch.randn(50, 64), torch.randn(50, 64)
    on_npu = cos.to("npu"), sin.to("npu")
    positions, rows = torch.tensor([5, 6]).to("npu"), (torch.empty(2, 64).to("npu"), torch.empty(2, 64).to("npu"))
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, stream=torch.npu.Stream()):
        ops.rope_gather(*on_npu, positions, out=rows)
    for wanted in ([7, 49], [0, 3]):
        positions.copy_(torch.tensor(wanted))
        graph.replay()
        torch.npu.synchronize()
        assert torch.equal(rows[0].cpu(), cos[wanted])
        assert torch.equal(rows[1].cpu(), sin[wanted])


def test_the_allocator_serves_requests_on_npu_as_on_cpu(sim, ops):
    pools = ("full", "swa", "c4", "c128", "c4_state", "c128_state")

    def serve(device):
        layout = ops.KVLayout(16, 32, 4, 512, dict.fromkeys(pools, 40), device)
        tables = ops.RequestTables(layout)
        alloc = ops.KVAllocator(layout, tables)
        slots = [alloc.alloc_extend([0, 2], [0, 0], [126, 5])]
        slots.append(alloc.reserve_extend([0, 2], [126, 5], [130, 9]))
        alloc.evict([0, 2], [128, 6])
        alloc.free([2])
        slots.append(alloc.alloc_extend([1], [0], [300]))
        values = [loc.cpu().tolist() for step in slots for loc in step.in_order()]
        return values, [table.cpu().tolist() for table in tables.op_tables]

    assert serve("npu") == serve("cpu")


def test_tensors_of_two_devices_are_refused(sim, ops):
    here, there = torch.zeros(4, 2).to("npu:0"), torch.zeros(4, 2).to("npu:1")
    with pytest.raises(ValueError, match="rope_gather: sin is on npu:1, expected npu:0 like cos"):
        ops.rope_gather(here, there, torch.zeros(1, dtype=torch.int64).to("npu:0"))


def test_the_second_device_runs_its_own_tensors(sim, ops):
    cos, positions = torch.randn(9, 4), torch.tensor([8, 1, 1])
    table = cos.to("npu:1")
    got, _ = ops.rope_gather(table, table, positions.to("npu:1"))
    assert got.device == torch.device("npu:1")
    assert torch.equal(got.cpu(), cos[positions])


POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")


def test_a_verify_step_is_two_launches_and_one_copy(sim, ops):
    layout = ops.KVLayout(16, 32, 4, 512, dict.fromkeys(POOLS, 40), "npu")
    tables = ops.RequestTables(layout)
    alloc = ops.KVAllocator(layout, tables)
    alloc.alloc_extend([0, 2], [0, 0], [126, 5])
    requests, lengths = torch.tensor([0, 2]).to("npu"), torch.tensor([126, 5]).to("npu")
    cos, sin = torch.randn(512, 8).to("npu"), torch.randn(512, 8).to("npu")
    bases = dict(main_rope=(cos, sin), compress_rope=(cos, sin))
    out = ops.VerifyStep.empty(layout, 2, 8, 8, **bases)
    torch.npu.synchronize()
    sim.reset_counters()
    alloc.reserve_extend([0, 2], [126, 5], [130, 9])
    ops.build_verify_step(tables, requests, lengths, 4, cos, sin, **bases, out=out)
    torch.npu.current_stream().npu_stream  # noqa: B018  empties torch_npu's own queue into the stream
    assert counted(sim, "launch.") == {"launch.reserve_extend": 1, "launch.fill_uniform_step": 1}
    copies = {name: count for name, count in counted(sim, "copy.").items() if not name.endswith(".bytes")}
    assert list(copies.values()) == [1] and next(iter(copies)).startswith("copy.h2d.")
    assert not counted(sim, "sync.") and not counted(sim, "operator.")
    assert out.metadata.positions.cpu().tolist() == [126, 127, 128, 129, 5, 6, 7, 8]

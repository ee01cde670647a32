"""Ascend C kernels of the kernel simulator, launched through torch_npu on the simulated device."""

import pytest
import torch

N = 100  # int32 elements of every tensor here


def ints(value, device="npu"):
    return torch.full((N,), value, dtype=torch.int32).to(device)


@pytest.fixture
def scale(sim):
    return torch.ops.npu_sim_test.scale


def test_a_kernel_runs_when_its_stream_does(sim, scale):
    value = ints(3)
    scale(value, 5)
    torch.npu.current_stream().npu_stream  # noqa: B018  empties torch_npu's own queue into the stream
    assert sim.counters()["launch.sim_test_scale"] == 1
    assert "run.sim_test_scale" not in sim.counters()
    assert value.tolist() == [15] * N
    assert sim.counters()["run.sim_test_scale"] == 1


def test_a_captured_kernel_keeps_its_scalar_arguments(sim, scale):
    value, factor = ints(3), 2
    graph = torch.npu.NPUGraph()
    torch.npu.synchronize()
    with torch.npu.graph(graph, stream=torch.npu.Stream()):
        scale(value, factor)
    factor = 7
    for _ in range(3):
        graph.replay()
    assert value.tolist() == [24] * N


@pytest.mark.parametrize("mode", ["LAZY", "ASYNCHRONOUS", "SYNCHRONOUS"])
def test_kernels_on_two_devices(sim, scale, mode):
    import npu_sim

    sim.set_mode(npu_sim.Mode[mode])
    here, there = ints(3, "npu:0"), ints(4, "npu:1")
    for _ in range(3):
        scale(here, 2)
        scale(there, 3)
    assert here.tolist() == [24] * N
    assert there.tolist() == [108] * N


def test_a_kernel_cannot_touch_another_devices_memory(sim):
    from ctypes import c_int32, c_uint32, c_void_p

    import npu_sim

    there = ints(4, "npu:1")
    kernels = npu_sim.kernel_library("test_ops/libnpu_sim_test_kernels.so")
    launch = kernels.aclrtlaunch_sim_test_scale
    launch.argtypes = [c_uint32, c_void_p, c_void_p, c_int32, c_int32]
    assert launch(1, torch.npu.current_stream("npu:0").npu_stream, there.data_ptr(), N, 2) == 0
    with pytest.raises(RuntimeError, match="507035"):
        torch.npu.synchronize()
    assert sim.kernel_errors()[0]["kernel"] == "sim_test_scale"
    sim.reset_errors()
    assert there.tolist() == [4] * N


def test_what_the_kernel_simulator_finds_fails_the_stream(sim, scale):
    too_long = torch.ones(1025, dtype=torch.int32).to("npu")
    scale(too_long, 2)
    with pytest.raises(RuntimeError, match="507035"):
        torch.npu.synchronize()
    assert sim.kernel_errors()
    sim.reset_errors()
    assert sim.kernel_errors() == []

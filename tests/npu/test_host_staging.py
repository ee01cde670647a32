"""Pinned staging on the simulated NPU. In lazy mode a copy runs late, so that a buffer written too early shows."""

import pytest
import torch

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")


def copies(sim):
    counters = sim.counters()
    return {name: count for name, count in counters.items() if name.startswith(("copy.", "sync.", "operator."))}


@pytest.mark.parametrize("mode", ["LAZY", "ASYNCHRONOUS"])
def test_many_copies_in_flight_keep_their_values(sim, ops, mode):
    import npu_sim

    sim.set_mode(npu_sim.Mode[mode])
    staging = ops.HostStaging("npu")
    lengths = torch.empty(5, dtype=torch.int32)
    got = []
    for step in range(20):
        lengths.fill_(step)
        got.append(staging.to_device(lengths)[0])
    assert [tensor.tolist() for tensor in got] == [[step] * 5 for step in range(20)]


def test_the_ring_grows_while_copies_are_pending_and_is_reused_afterwards(sim, ops):
    staging = ops.HostStaging("npu")
    for _ in range(2):
        kept = [staging.to_device(torch.full((3,), i)) for i in range(4)]
        assert staging.num_buffers == 4
        torch.npu.synchronize()
        assert [tensor.tolist() for (tensor,) in kept] == [[i] * 3 for i in range(4)]
    large = staging.to_device(torch.arange(5000))[0]
    assert large.tolist() == list(range(5000))
    assert staging.num_buffers == 4  # the larger buffer took a small one's place


@pytest.mark.parametrize("form, own_stream", [("to_device", True), ("copy_into", False)])
def test_a_buffer_is_free_only_when_its_copy_has_run(sim, ops, form, own_stream):
    """Asking about an event often enough makes a lazy stream go as far as the event, and no further."""
    staging, calls = ops.HostStaging("npu"), 1100
    stream = torch.npu.Stream() if own_stream else torch.npu.current_stream()
    targets = torch.zeros(calls, 1, dtype=torch.int64).to("npu")
    got = []
    with torch.npu.stream(stream):
        for step in range(calls):
            value = torch.tensor([step])
            if form == "to_device":
                got.append(staging.to_device(value)[0])
            else:
                staging.copy_into(targets[step], value)
                got.append(targets[step])
            if step == 0:
                # Or, on a busy machine, too few questions about the first copy get past torch_npu's queue.
                stream.npu_stream  # noqa: B018
        assert staging.num_buffers < calls
        stream.synchronize()
        # The first buffer was the first to be written again.
        assert [tensor.tolist() for tensor in got[:3]] == [[0], [1], [2]]


def test_several_tensors_are_one_asynchronous_copy(sim, ops):
    staging = ops.HostStaging("npu:1")
    requests, lengths = torch.tensor([3, 1, 2], dtype=torch.int32), torch.tensor([[7, 8]])
    empty = torch.empty(0, 4, dtype=torch.int32)
    sim.reset_counters()
    got = staging.to_device(requests, empty, lengths)
    with torch.npu.device("npu:1"):
        torch.npu.current_stream().npu_stream  # noqa: B018  empties torch_npu's own queue into the stream
    assert {name: count for name, count in copies(sim).items() if not name.endswith(".bytes")} == {"copy.h2d.async": 1}
    for tensor, wanted in zip(got, (requests, empty, lengths), strict=True):
        assert tensor.device == torch.device("npu:1")
        assert tensor.dtype == wanted.dtype
        assert torch.equal(tensor.cpu(), wanted)


def test_a_stream_of_its_own_reads_its_own_values(sim, ops):
    staging = ops.HostStaging("npu")
    got = []
    for step in range(4):
        stream = torch.npu.Stream()
        with torch.npu.stream(stream):
            got.append((stream, staging.to_device(torch.full((2,), step))[0]))
    for step, (stream, tensor) in reversed(list(enumerate(got))):
        stream.synchronize()
        assert tensor.cpu().tolist() == [step, step]


def test_the_allocator_stages_one_pinned_copy_a_call_and_never_waits(sim, ops):
    def serve(device):
        layout = ops.KVLayout(16, 32, 4, 512, dict.fromkeys(POOLS, 40), device)
        tables = ops.RequestTables(layout)
        alloc = ops.KVAllocator(layout, tables)
        if device == "npu":
            torch.npu.synchronize()
            sim.reset_counters()
        alloc.alloc_extend([0, 1, 2], [0, 0, 0], [100, 37, 5])
        for step in range(6):
            alloc.reserve_extend([0, 1, 2], [100 + step, 37 + step, 5 + step], [104 + step, 41 + step, 9 + step])
        alloc.free([1])
        alloc.alloc_extend([3], [0], [90])
        if device == "npu":
            torch.npu.current_stream().npu_stream  # noqa: B018  empties torch_npu's own queue into the stream
        counted = copies(sim)
        return counted, [table.cpu().tolist() for table in tables.op_tables]

    counted, tables = serve("npu")
    _, wanted = serve("cpu")
    assert tables == wanted
    assert {name: count for name, count in counted.items() if not name.endswith(".bytes")} == {"copy.h2d.async": 9}

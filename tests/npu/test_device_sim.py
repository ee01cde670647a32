"""The simulated device under torch_npu: memory, copies, streams, events, modes, the caching allocator."""

import signal

import pytest
import torch

N = 64  # int32 elements of most tensors here

ALL_MODES = ["LAZY", "ASYNCHRONOUS", "SYNCHRONOUS"]


@pytest.fixture
def add_out(sim):
    return torch.ops.npu_sim_test.add_out


def ints(value, device="npu"):
    return torch.full((N,), value, dtype=torch.int32).to(device)


def poisoned(device="npu"):
    return ints(-1515870811, device)  # every byte is the simulator's poison


def set_mode(sim, name):
    import npu_sim

    sim.set_mode(npu_sim.Mode[name])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bfloat16, torch.float32, torch.bool])
def test_copies_move_bytes_and_are_counted(sim, dtype):
    host = torch.arange(7).to(dtype)
    back = host.to("npu").cpu()
    assert torch.equal(back, host)
    counters = sim.counters()
    assert counters["copy.h2d.blocking"] == counters["copy.d2h.blocking"] == 1
    assert counters["copy.h2d.blocking.bytes"] == 7 * dtype.itemsize


def test_views_address_the_same_memory(sim, add_out):
    whole = torch.arange(N, dtype=torch.int32).to("npu")
    add_out(whole[8:16], whole[8:16], whole[8:16])
    assert whole.view(8, 8)[1].tolist() == [2 * i for i in range(8, 16)]
    assert whole.cpu()[:8].tolist() == list(range(8))


def test_fresh_memory_is_poisoned_and_freed_memory_is_gone(sim):
    torch.npu.empty_cache()
    tensor = torch.empty(32 << 20, dtype=torch.uint8, device="npu")
    address = tensor.data_ptr()
    assert sim.read_bytes(address, 16) == bytes([sim.poison]) * 16
    del tensor
    torch.npu.empty_cache()
    with pytest.raises(ValueError, match="expected live device memory"):
        sim.read_bytes(address, 16)
    assert "freed" in sim.errors()[0]
    sim.reset_errors()


def test_the_host_cannot_read_device_memory(run_process):
    done = run_process("""
        tensor = torch.zeros(4, dtype=torch.int32).to("npu")
        print("reading", flush=True)
        torch.ops.npu_sim_test.host_read(tensor)
    """)
    assert done.stdout.endswith("reading\n")
    assert done.returncode == -signal.SIGSEGV


def test_out_of_memory_is_an_error_that_torch_understands(sim):
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 34, dtype=torch.uint8, device="npu")
    sim.reset_errors()


def test_lazy_streams_run_nothing_before_a_wait(sim, add_out):
    one, out = ints(1), poisoned()
    add_out(one, one, out)
    torch.npu.current_stream().npu_stream  # noqa: B018  empties torch_npu's own queue into the stream
    assert sim.counters()["launch.sim_test_add"] == 1
    assert sim.read_bytes(out.data_ptr(), 4) == bytes([sim.poison]) * 4
    torch.npu.synchronize()
    assert sim.counters()["run.sim_test_add"] == 1
    assert sim.read_bytes(out.data_ptr(), 4) == b"\2\0\0\0"


@pytest.mark.parametrize("mode", ALL_MODES)
@pytest.mark.parametrize("wait", [False, True])
def test_a_missing_wait_between_streams_shows_in_lazy_mode(sim, add_out, mode, wait):
    set_mode(sim, mode)
    first, second = torch.npu.Stream(), torch.npu.Stream()
    one, middle, out = ints(1), poisoned(), poisoned()
    torch.npu.synchronize()
    with torch.npu.stream(first):
        add_out(one, one, middle)
    if wait:
        second.wait_stream(first)
    with torch.npu.stream(second):
        add_out(middle, middle, out)
    second.synchronize()
    right = sim.read_bytes(out.data_ptr(), 4) == b"\4\0\0\0"
    if wait or mode == "SYNCHRONOUS":
        assert right
    elif mode == "LAZY":
        assert not right


def test_an_early_read_of_an_asynchronous_copy_sees_stale_bytes(sim, add_out):
    one, out = ints(1), poisoned()
    host = torch.empty(N, dtype=torch.int32, pin_memory=True)
    host.fill_(7)
    add_out(one, one, out)
    host.copy_(out, non_blocking=True)
    event = torch.npu.Event()
    event.record()
    assert host.tolist() == [7] * N
    assert not event.query()
    event.synchronize()
    assert event.query()
    assert host.tolist() == [2] * N
    assert sim.counters()["copy.d2h.async"] == 1


@pytest.mark.parametrize("mode, seen", [("LAZY", 6), ("SYNCHRONOUS", 5)])
def test_overwriting_a_pinned_source_too_early_shows_in_lazy_mode(sim, mode, seen):
    set_mode(sim, mode)
    source = ints(5, "cpu").pin_memory()
    target = source.to("npu", non_blocking=True)
    torch.npu.current_stream().npu_stream  # noqa: B018  empties torch_npu's own queue into the stream
    source.fill_(6)
    assert target.tolist() == [seen] * N


def test_a_pageable_source_is_read_before_the_copy_returns(sim):
    source = ints(5, "cpu")
    target = source.to("npu", non_blocking=True)
    torch.npu.current_stream().npu_stream  # noqa: B018  empties torch_npu's own queue into the stream
    source.fill_(6)
    assert target.tolist() == [5] * N
    assert sim.counters()["copy.h2d.pageable"] == 1


def test_asking_often_enough_makes_progress(sim, add_out):
    out = poisoned()
    add_out(ints(1), ints(1), out)
    event = torch.npu.Event()
    event.record()
    assert any(event.query() for _ in range(100_000))
    assert sim.read_bytes(out.data_ptr(), 4) == b"\2\0\0\0"


def test_events_time_what_lies_between_them(sim, add_out):
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    start.record()
    add_out(ints(1), ints(1), ints(0))
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 10_000


def test_record_stream_keeps_a_block_until_its_stream_has_run(sim, add_out):
    one, side = ints(1), torch.npu.Stream()
    block = torch.empty(N, dtype=torch.int32, device="npu")
    address = block.data_ptr()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        add_out(one, one, block)
    block.record_stream(side)
    del block
    assert torch.empty(N, dtype=torch.int32, device="npu").data_ptr() != address
    side.synchronize()
    assert torch.empty(N, dtype=torch.int32, device="npu").data_ptr() == address


@pytest.mark.parametrize("mode", ALL_MODES)
def test_second_device(sim, add_out, mode):
    set_mode(sim, mode)
    here, there = ints(1, "npu:0"), ints(3, "npu:1")
    out = poisoned("npu:1")
    add_out(there, there, out)
    assert out.tolist() == [6] * N
    assert here.to("npu:1").tolist() == [1] * N
    assert torch.npu.current_device() == 0


def test_a_missing_device_guard_is_an_error(sim):
    there, out = ints(3, "npu:1"), poisoned("npu:1")
    torch.ops.npu_sim_test.add_out_unguarded(there, there, out)
    with pytest.raises(RuntimeError, match="507035"):
        torch.npu.synchronize()
    assert "is memory of device 1, expected device 0" in sim.errors()[0]
    sim.reset_errors()
    assert sim.read_bytes(out.data_ptr(), 4) == bytes([sim.poison]) * 4


BUILTIN = {
    "aclnnInplaceZero": lambda x: torch.zeros(3, device="npu"),
    "aclnnInplaceFillScalar": lambda x: x.fill_(1),
    "aclnnAdds": lambda x: x + 1,
    "aclnnInplaceCopy": lambda x: x[::2].contiguous(),
    "aclnnCast": lambda x: torch.ops.npu.npu_dtype_cast(x, torch.float32),
    "aclnnArange": lambda x: torch.arange(3, device="npu"),
    "aclnnIndexSelect": lambda x: x.index_select(0, x),
}


@pytest.mark.parametrize("name", BUILTIN)
def test_builtin_operators_fail_and_are_counted_by_name(sim, name):
    tensor = ints(0)
    sim.reset_counters()
    with pytest.raises(RuntimeError, match=f"call {name} failed, error code is 100029"):
        BUILTIN[name](tensor)
    assert sim.counters()[f"operator.{name}"] == 1
    sim.reset_errors()


def test_one_int64_is_filled_in_the_order_of_the_stream(sim):
    """What torch_npu does to the state of its random generator."""
    state = torch.tensor([1, 2, 3]).to("npu")
    sim.reset_counters()
    state[1:2].fill_(2**40 + 1)
    torch.npu.current_stream().npu_stream  # noqa: B018  empties torch_npu's own queue into the stream
    assert sim.read_bytes(state.data_ptr() + 8, 8) == (2).to_bytes(8, "little")
    assert state.tolist() == [1, 2**40 + 1, 3]
    assert sim.counters()["operator.aclnnInplaceFillScalar"] == 1


OTHER_FILLS = {
    "two elements": lambda: torch.tensor([1, 2]).to("npu").fill_(3),
    "int32": lambda: torch.tensor([1], dtype=torch.int32).to("npu").fill_(3),
    "a float": lambda: torch.tensor([1]).to("npu").fill_(3.5),
}


@pytest.mark.parametrize("fill", OTHER_FILLS)
def test_any_other_fill_fails_as_every_builtin_operator(sim, fill):
    with pytest.raises(RuntimeError, match="call aclnnInplaceFillScalar failed, error code is 100029"):
        OTHER_FILLS[fill]()
    assert sim.counters()["operator.aclnnInplaceFillScalar"] == 1
    sim.reset_errors()

"""One scenario under torch_npu's own settings, its sanitizer, and launches that fail. Each in a process of its own."""

import textwrap

import pytest

SCENARIO = """
    import os
    N = 32
    def ints(value):
        return torch.full((N,), value, dtype=torch.int32).to("npu")
    for mode in npu_sim.Mode:
        sim.set_mode(mode)
        one, middle, out = ints(1), ints(0), ints(0)
        side = torch.npu.Stream()
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            add_out(one, one, middle)
        torch.npu.current_stream().wait_stream(side)
        add_out(middle, middle, out)
        temporary = ints(5)
        add_out(temporary, out, out)
        del temporary
        host = torch.empty(N, dtype=torch.int32, pin_memory=True)
        host.copy_(out, non_blocking=True)
        event = torch.npu.Event()
        event.record()
        event.synchronize()
        assert host.tolist() == [9] * N, (mode, host)
    assert sim.errors() == [], sim.errors()
    threads = [open(f"/proc/self/task/{thread}/comm").read().strip() for thread in os.listdir("/proc/self/task")]
    print("passed", threads.count("release_thread"), sim.counters()["malloc"], flush=True)
"""

# Settings, the task queues that they give the two streams of each mode, and the allocations of device memory.
SETTINGS = {
    "as it is": ({}, 1, 1),
    "task queue off": (dict(TASK_QUEUE_ENABLE="0"), 0, 1),
    "a task queue for each stream": (dict(TASK_QUEUE_ENABLE="1", PER_STREAM_QUEUE="1"), 4, 1),
    "no caching allocator": (dict(PYTORCH_NO_NPU_MEMORY_CACHING="1"), 1, 12),
}


@pytest.mark.parametrize("environment, queues, mallocs", SETTINGS.values(), ids=SETTINGS.keys())
def test_scenario(run_process, environment, queues, mallocs):
    done = run_process(SCENARIO, **environment)
    assert done.returncode == 0, done.stderr
    assert f"passed {queues} {mallocs}" in done.stdout


def test_the_sanitizer_sees_a_missing_wait_and_nothing_else(run_process):
    done = run_process(
        textwrap.dedent(SCENARIO)
        + textwrap.dedent("""
            import dsv4_npu_ops
            sim.set_mode(npu_sim.Mode.LAZY)
            side = torch.npu.Stream()
            table, positions = torch.ones(4, 2).to("npu"), torch.zeros(3, dtype=torch.int64).to("npu")
            side.wait_stream(torch.npu.current_stream())
            with torch.npu.stream(side):
                rows = dsv4_npu_ops.rope_gather(table, table, positions)
            print("ordered", flush=True)
            try:
                dsv4_npu_ops.rope_gather(table, table, positions, out=rows)
                print("missed")
            except Exception as error:
                print(type(error).__name__)
        """),
        TORCH_NPU_SANITIZER="1",
    )
    assert done.returncode == 0, done.stderr
    scenario, *rest = done.stdout.splitlines()
    assert scenario.startswith("passed")
    assert rest == ["ordered", "CUDASanitizerErrors"], done.stderr
    assert "dsv4_npu_ops::rope_gather.out" in done.stderr


def test_without_the_caching_allocator_every_tensor_is_an_allocation(run_process):
    done = run_process(
        """
        import ctypes
        sim.reset_counters()
        first, second = (torch.zeros(64, dtype=torch.int32).to("npu") for _ in range(2))
        address = first.data_ptr()
        print("mallocs", sim.counters()["malloc"])
        del first
        try:
            sim.read_bytes(address, 4)
        except ValueError:
            print("freed")
        alias = sim.host_alias(second.data_ptr())
        print("beyond", flush=True)
        ctypes.string_at(alias + 4096, 1)  # what a kernel does that runs over the end of its tensor by a page
        print("survived")
        """,
        PYTORCH_NO_NPU_MEMORY_CACHING="1",
    )
    assert done.stdout.splitlines() == ["mallocs 2", "freed", "beyond"]
    assert done.returncode < 0


@pytest.mark.parametrize("queue", ["0", "1"])
def test_a_launch_error_is_raised_and_names_the_kernel(run_process, queue):
    done = run_process(
        """
        one = torch.ones(4, dtype=torch.int32).to("npu")
        sim.fail_launches("sim_test_add", 507018)
        try:
            add_out(one, one, one)
            torch.npu.synchronize()
            print("lost")
        except RuntimeError as error:
            print("raised", "sim_test_add" in str(error))
        print(sim.errors())
        """,
        TASK_QUEUE_ENABLE=queue,
    )
    raised, errors = done.stdout.splitlines()
    assert raised == "raised True"
    assert "error 507018" in errors


def test_a_task_that_fails_on_the_device_surfaces_at_the_next_wait(run_process):
    done = run_process("""
        one = torch.ones(4, dtype=torch.int32).to("npu:0")
        other = torch.ones(4, dtype=torch.int32).to("npu:1")
        torch.ops.npu_sim_test.add_out_unguarded(other, other, other)
        try:
            one.cpu()
            print("lost")
        except RuntimeError as error:
            print("raised", "507035" in str(error))
    """)
    assert done.stdout.splitlines() == ["raised True"]

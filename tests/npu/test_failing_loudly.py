"""What is wrong on an NPU becomes an error that says so; each in a process that it may spoil, where it does."""

import os
import subprocess
import sys

import npu_sim
import pytest
import torch

# What several scripts need after the prelude of run_process.
ROWS = """
        import time

        import dsv4_npu_ops as d
        cos, positions = torch.zeros(4, 2).to("npu"), torch.zeros(3, dtype=torch.int64).to("npu")

        def attempt(name, body):
            try:
                body()
                print(f"{name}: no error")
            except (RuntimeError, ValueError) as error:
                print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
"""


def printed(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_torch_npu_without_cann_leaves_the_cpu_working():
    """The wheel as it is, and no stand-ins: importing it fails."""
    script = f"""
import sys
sys.path.append({str(npu_sim.torch_npu_dir())!r})
import torch, dsv4_npu_ops as d
table = torch.arange(8.0).reshape(4, 2)
print(d.rope_gather(table, table, torch.tensor([2]))[0].tolist())
try:
    d.KVLayout(device="npu")
except RuntimeError as error:
    print(error)
"""
    library = str(npu_sim.build_dir() / "project_ops" / "libdsv4_npu.so")
    environment = os.environ | {"DSV4_NPU_LIBRARY": library, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    cpu, message = printed(done).splitlines()[-2:]
    assert cpu == "[[4.0, 5.0]]"
    assert message.startswith("KVLayout: device 'npu' needs an NPU, and torch_npu cannot be imported: lib")


@pytest.mark.parametrize("kind", ["Ascend950PR_9599", "Ascend310P3", "Ascend910B", "Ascend910A"])
def test_a_library_for_another_architecture_is_an_error(run_process, kind):
    """Ascend910B without a digit is the first 910."""
    out = printed(
        run_process(
            ROWS
            + """
        attempt("layout", lambda: d.KVLayout(device="npu"))
        attempt("op", lambda: d.rope_gather(cos, cos, positions))
        print("cpu:", d.rope_gather(torch.ones(1, 2), torch.ones(1, 2), torch.tensor([0]))[0].tolist())
        """,
            ASCEND_DEVICE_SIM_SOC=kind,
        )
    )
    layout, op, cpu = out.splitlines()[-3:]
    assert f"was built for ascend910b3, and the device is {kind.lower()}: build with DSV4_SOC_VERSION=" in layout
    assert "RuntimeError: dsv4_npu_ops: the NPU library was built for ascend910b3, and this device is" in op
    assert cpu == "cpu: [[1.0, 1.0]]"


@pytest.mark.parametrize("kind", ["Ascend910B1", "Ascend910B2C", "Ascend910B4-1", "Ascend910_9391", "Ascend910_9362"])
def test_a_library_serves_every_kind_of_its_architecture(run_process, kind):
    out = printed(
        run_process(
            ROWS
            + """
        print(d.rope_gather(cos, cos, positions)[0].cpu().tolist() == cos.cpu()[positions.cpu()].tolist())
        print(torch.ops.dsv4_npu_ops.npu_soc_versions())
        """,
            ASCEND_DEVICE_SIM_SOC=kind,
        )
    )
    assert out.splitlines()[-2:] == ["True", f"('ascend910b3', '{kind.lower()}', True)"]


@pytest.mark.parametrize("queue", ["0", "1"])
def test_a_launch_that_fails_is_not_lost(run_process, queue):
    out = printed(
        run_process(
            ROWS
            + """
        d.rope_gather(cos, cos, positions)
        torch.npu.synchronize()
        sim.fail_launches("rope_gather", 507899)

        def launch_and_wait():
            d.rope_gather(cos, cos, positions)
            # The queue's thread may note the failure only after a first wait has found the queue empty.
            for _ in range(20):
                torch.npu.synchronize()
                time.sleep(0.01)

        attempt("launch", launch_and_wait)
        """,
            TASK_QUEUE_ENABLE=queue,
        )
    )
    (line,) = [line for line in out.splitlines() if line.startswith("launch:")]
    assert line.startswith("launch: RuntimeError") and "rope_gather" in line, out


def test_misuse_in_a_capture_is_an_error(run_process):
    out = printed(
        run_process(
            ROWS
            + """
        def captured(body):
            torch.npu.synchronize()
            with torch.npu.graph(torch.npu.NPUGraph(), stream=torch.npu.Stream()):
                try:
                    body()
                finally:
                    sim.reset_errors()

        attempt("first op", lambda: captured(lambda: d.rope_gather(cos, cos, positions)))
        d.rope_gather(cos, cos, positions)
        pools = dict.fromkeys(("full", "swa", "c4", "c128", "c4_state", "c128_state"), 9)
        layout = d.KVLayout(16, 32, 2, 64, pools, "npu")
        alloc = d.KVAllocator(layout, d.RequestTables(layout))
        attempt("allocation", lambda: captured(lambda: alloc.alloc_extend([0], [0], [20])))
        print("free:", alloc.available_pages("full"))
        attempt("errors", lambda: captured(d.device_errors))
        """
        )
    )
    lines = dict(line.split(": ", 1) for line in out.splitlines() if ": " in line)
    assert "the first op on npu:0 came inside a graph capture, expected one before it" in lines["first op"]
    assert "HostStaging.to_device: called inside a graph capture, expected before it" in lines["allocation"]
    assert lines["free"] == "9"
    assert "device_errors: called inside a graph capture, expected outside" in lines["errors"]


def test_wrong_devices_and_dtypes_are_refused_before_anything_is_launched(ops):
    table = torch.zeros(4, 2).to("npu")
    with pytest.raises(ValueError, match="rope_gather: positions is on cpu, expected npu:0 like cos"):
        ops.rope_gather(table, table, torch.zeros(1, dtype=torch.int64))
    with pytest.raises(ValueError, match="rope_gather: positions is on npu:0, expected cpu like cos"):
        ops.rope_gather(torch.zeros(4, 2), torch.zeros(4, 2), torch.zeros(1, dtype=torch.int64).to("npu"))
    with pytest.raises(ValueError, match="rope_gather: positions has dtype Float, expected Int or Long"):
        ops.rope_gather(table, table, torch.zeros(1).to("npu"))
    double = torch.zeros(3, 4, dtype=torch.float64).to("npu")
    with pytest.raises(ValueError, match="apply_rotary: q has dtype Double"):
        ops.apply_rotary(double, None, torch.zeros(3, 2).to("npu"), torch.zeros(3, 2).to("npu"))

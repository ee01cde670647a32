"""Tests on the simulated NPU. They need a process of their own and run only with DSV4_NPU_SIM=1 (make test-npu-sim)."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
from npu.script_server import NPU_SIM, ScriptServer, run_fresh

IMPORT_SETTINGS = {"TORCH_NPU_SANITIZER"}  # what torch_npu reads when it is imported

if os.environ.get("DSV4_NPU_SIM") == "1":
    sys.path.insert(0, str(NPU_SIM))
else:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start processes go first: once loaded, torch_npu's idle threads poll and cost the others time."""
    items.sort(key=lambda item: "run_process" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def loaded_sim():
    """torch_npu on the simulated device, and the ops of tests/npu_sim/test_ops."""
    import npu_sim
    import torch

    loaded = npu_sim.load()
    torch.ops.load_library(str(npu_sim.build_dir() / "test_ops" / "libnpu_sim_test_ops.so"))
    return loaded


@pytest.fixture
def sim(loaded_sim) -> Iterator:
    """The simulated device in lazy mode with nothing pending, counted or recorded. A test that leaves errors fails."""
    import npu_sim
    import torch

    loaded_sim.set_mode(npu_sim.Mode.LAZY)
    torch.npu.synchronize()
    loaded_sim.reset_errors()
    loaded_sim.reset_counters()
    yield loaded_sim
    torch.npu.synchronize()
    loaded_sim.set_mode(npu_sim.Mode.LAZY)
    loaded_sim.set_replay_order(npu_sim.ReplayOrder.AS_CAPTURED)
    assert loaded_sim.errors() == []


@pytest.fixture
def ops(sim):
    """The package with its NPU library, after a first op on both devices; the simulated device counts from here on."""
    import torch

    import dsv4_npu_ops
    from dsv4_npu_ops.npu_library import require_npu

    require_npu("tests/npu")  # loads the library if the package was imported before the simulated device
    for device in ("npu:1", "npu:0"):
        table = torch.zeros(1, 2).to(device)
        dsv4_npu_ops.rope_gather(table, table, torch.zeros(1, dtype=torch.int64).to(device))
        torch.npu.synchronize(device)
    sim.reset_counters()
    return dsv4_npu_ops


@pytest.fixture(scope="session")
def script_server() -> Iterator[ScriptServer]:
    server = ScriptServer()
    yield server
    server.close()


@pytest.fixture
def run_process(script_server) -> Callable[..., subprocess.CompletedProcess]:
    """Runs a script in a process of its own, with torch_npu on the simulated device as `sim` and `torch` imported.

    For what would spoil this process: crashes, failed operators behind the task queue, other settings of torch_npu.
    """

    def run(script: str, **environment: str) -> subprocess.CompletedProcess:
        script = textwrap.dedent(script)
        if IMPORT_SETTINGS & environment.keys():
            return run_fresh(script, environment)
        return script_server.run(script, environment)

    return run

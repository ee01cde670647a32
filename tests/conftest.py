"""Test settings, and the backend that tests run on: the CPU, or with DSV4_BACKEND=ascend-sim the simulated kernels.

The simulated kernels take the place of the CPU ops for the whole process, so that each backend is a run of its own over
the same tests (`make test` does both).
"""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

# Under pytest-xdist each worker has one core.
torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)
# Two shared cores: a deadline would report the neighbours, not the code.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=20 if os.environ.get("DSV4_BACKEND") else 100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("default")
# For mutants, most of which fail: no shrinking, nothing remembered, and a first pass of few examples.
unshrunk = settings(database=None, phases=(Phase.explicit, Phase.generate))
settings.register_profile("unshrunk", parent=unshrunk)
settings.register_profile("narrow", parent=unshrunk, max_examples=6)

BACKEND = os.environ.get("DSV4_BACKEND", "cpu")
SIMULATED = BACKEND == "ascend-sim"

if SIMULATED:
    from ascend_backend.backend import AscendSim

    simulated_device = AscendSim()
elif BACKEND != "cpu":
    raise pytest.UsageError(f"DSV4_BACKEND is {BACKEND!r}, expected cpu or ascend-sim")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cpu_only: checks what only the CPU does, such as raising on bad values")
    config.addinivalue_line("markers", "simulated_only: checks what only the simulated device shows")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    unwanted = "cpu_only" if SIMULATED else "simulated_only"
    for item in items:
        if item.get_closest_marker(unwanted):
            item.add_marker(pytest.mark.skip(reason=f"{unwanted}, and this is {BACKEND}"))


# Blocks of each launch on the simulated device; 0 is what the op asks for.
BLOCKS = [int(blocks) for blocks in os.environ.get("DSV4_SIM_BLOCKS", "0,1,2,7,24,48").split(",")]


@pytest.fixture(params=BLOCKS if SIMULATED else [0], ids=lambda blocks: f"{BACKEND}-{blocks or 'own'}")
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Device under test."""
    if SIMULATED:
        simulated_device.take_errors()
        simulated_device.force_blocks(request.param)
    yield torch.device("cpu")
    if SIMULATED:
        simulated_device.force_blocks(0)


@pytest.fixture
def ascend_sim() -> Iterator["AscendSim"]:
    """The simulated device, for tests marked simulated_only."""
    simulated_device.take_errors()
    simulated_device.take_counters()
    yield simulated_device
    simulated_device.take_errors()

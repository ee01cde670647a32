"""Test settings, and the backend that tests run on (tests/backends.py).

A backend other than the CPU takes the place of the CPU ops for the whole process, so that each one is a run of its own
over the same tests (`make test` does all that need no hardware).
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import random_draws
import torch
from backends import BACKEND, EXAMPLES, KERNEL_SIM, NPU

# Under pytest-xdist each worker has one core.
torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)
random_draws.set_up(EXAMPLES[BACKEND])

# Blocks of each launch in the simulator; 0 is what the op asks for. The last ones are thorough: few rows over 7 blocks
# are uneven, over 48 some blocks have none.
BLOCKS = [int(blocks) for blocks in os.environ.get("DSV4_SIM_BLOCKS", "0,7,48,1,2,24").split(",")]
QUICK_VARIANTS = 3

if KERNEL_SIM:
    from ascend_backend.backend import AscendSim

    # Other kernels than those for Atlas A2 and A3 (make test-ascend-sim-a5).
    kernels = os.environ.get("DSV4_SIM_KERNELS")
    simulated_device = AscendSim(Path(kernels) if kernels else None)
elif NPU:
    from npu_backend.backend import Npu

    npu = Npu(simulated=BACKEND == "npu-sim")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cpu_only: checks what only the CPU does, such as raising on bad values")
    config.addinivalue_line("markers", "device_only: checks what only a device does, such as error words")
    config.addinivalue_line("markers", "simulated_only: checks what only the kernel simulator shows, such as traffic")
    config.addinivalue_line("markers", "one_variant: slow, and the variants of the device make no difference to it")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests that take a device once for each number of blocks, or for each variant of an NPU."""
    if "device" in metafunc.fixturenames:
        variants = BLOCKS if KERNEL_SIM else npu.variants if NPU else [0]
        if any(metafunc.definition.iter_markers("one_variant")):
            variants = variants[:1]
        named = [
            pytest.param(
                variant,
                id=f"{BACKEND}-{variant or 'own'}",
                marks=[pytest.mark.thorough] if place >= QUICK_VARIANTS else [],
            )
            for place, variant in enumerate(variants)
        ]
        metafunc.parametrize("device", named, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    unwanted = [] if KERNEL_SIM else ["simulated_only"]
    unwanted.append("cpu_only" if KERNEL_SIM or NPU else "device_only")
    for item in items:
        for marker in unwanted:
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"{marker}, and this is {BACKEND}"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Fixtures that tests share are the same whichever test comes first."""
    random_draws.seed_all()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """A test is the same whether or not it was the first to want a fixture."""
    random_draws.seed_all()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A part without a test that is marked thorough has not failed."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.option.markexpr:
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Device under test."""
    if KERNEL_SIM:
        simulated_device.take_errors()
        simulated_device.force_blocks(request.param)
        yield torch.device("cpu")
        simulated_device.force_blocks(0)
        assert simulated_device.take_errors() == [], "kernels report values that are not bad"
    elif NPU:
        with npu.use(request.param):
            yield torch.device("cpu")
    else:
        yield torch.device("cpu")


@pytest.fixture
def ascend_sim() -> Iterator["AscendSim | Npu"]:
    """The device, for tests marked device_only, or simulated_only with its counters."""
    under_test = npu if NPU else simulated_device
    under_test.take_errors()
    if KERNEL_SIM:
        simulated_device.take_counters()
    yield under_test
    under_test.take_errors()

"""Fixtures of the simulator's own tests: one library with every kernel of tests/sim/kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ascend_sim.simulator import Simulator, build

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def _loaded() -> Simulator:
    sources = sorted((HERE / "kernels").glob("*.cpp"))
    # An instrumented build (tests/sanitize) has a folder of its own.
    build_dir = Path(os.environ.get("DSV4_BUILD_ROOT", ROOT / "build")) / "sim_test_kernels"
    return Simulator(build(sources, build_dir))


@pytest.fixture
def sim(_loaded: Simulator) -> Iterator[Simulator]:
    """The simulator with default switches, no memory and no errors; left the same way."""
    _loaded.clear_memory()
    _loaded.clear_errors()
    _loaded.clear_counters()
    yield _loaded
    _loaded.clear_memory()
    _loaded.clear_suppressions()
    _loaded.configure(
        seed=1,
        order="random",
        strict=True,
        profile="strict",
        tiling_key=0,
        scalar_gm_stores=False,
        report_overflow=True,
        report_special_half=True,
        max_calls=200_000_000,
        memory_cold=False,
    )

"""Timing that survives a shared machine: both sides of a comparison run in turn, and the ratio is what counts."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Case:
    """One comparison.

    ``ours`` and ``baseline`` do the same job and take no arguments; ``shape`` says how large it is. ``num_outputs``
    is the number of tensors that our op allocates and returns (0 for an ``out=`` form): an op that only allocates as
    many is timed beside it. ``target`` is the ratio baseline / ours that the project wants, if it set one.
    """

    op: str
    shape: str
    ours: Callable[[], object]
    baseline: Callable[[], object]
    baseline_name: str
    num_outputs: int = 0
    target: float | None = None


@dataclass(frozen=True)
class Result:
    """Medians in microseconds, and the median of the ratios of neighbouring runs."""

    ours_us: float
    baseline_us: float
    ratio: float


def _wait() -> None:
    """Until the device under test has done everything; a CPU always has."""
    device = torch.get_default_device()
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()


def time_us(run: Callable[[], object], calls: int) -> float:
    """Mean of ``calls`` calls."""
    # A single thread's own processor time: what others do on the machine then counts little.
    alone = torch.get_default_device().type == "cpu" and torch.get_num_threads() == 1
    clock = time.thread_time_ns if alone else time.perf_counter_ns
    _wait()
    start = clock()
    for _ in range(calls):
        run()
    _wait()
    return (clock() - start) / calls / 1e3


def _calls_for(run: Callable[[], object], budget_us: float) -> int:
    run()
    return max(1, int(budget_us / max(time_us(run, 1), 0.1)))


def compare(
    ours: Callable[[], object], baseline: Callable[[], object], *, rounds: int = 9, budget_us: float = 20_000
) -> Result:
    """Runs both in turn, ``rounds`` times, each for about ``budget_us`` microseconds a round."""
    calls, baseline_calls = _calls_for(ours, budget_us), _calls_for(baseline, budget_us)
    pairs = [(time_us(ours, calls), time_us(baseline, baseline_calls)) for _ in range(rounds)]
    return Result(
        ours_us=statistics.median(pair[0] for pair in pairs),
        baseline_us=statistics.median(pair[1] for pair in pairs),
        ratio=statistics.median(pair[1] / pair[0] for pair in pairs),
    )

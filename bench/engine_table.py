"""A table of an engine's functions beside the plug-in's: operations and time of each job."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from harness import time_us

VIEWS = frozenset(
    "view slice select expand permute unsqueeze squeeze alias detach as_strided t transpose reshape _unsafe_view "
    "lift_fresh split unbind".split()
)


def print_header(engine: str, described: str) -> None:
    """What is compared, what the least operation takes here, and the names of the columns."""
    import torch

    numbers = torch.zeros(4)
    least = min(time_us(lambda: numbers.add_(1), 1000) for _ in range(9))
    print(f"{engine}, {described}; an add_ of 4 numbers takes {least:.1f} us")
    print(f"{'':28}{'B':>5}{'engine ops':>12}{'us':>9}{'ours':>6}{'us':>9}{'times':>7}")


def print_row(
    name: str, rows: int, before: Counter, slow_us: float, after: Counter, fast_us: float, times: float
) -> None:
    """One job of ``rows`` requests: the engine's operations and time, ours, and how many times faster that is."""
    print(f"{name:28}{rows:5}{before.total():12}{slow_us:9.0f}{after.total():6}{fast_us:9.0f}{times:7.1f}", flush=True)


def operations(call: Callable[[], Any]) -> Counter:
    """What one call dispatches on tensors, by name; views are not counted."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found: Counter = Counter()

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.name().partition("::")[2].partition(".")[0]
            if name not in VIEWS:
                found[name] += 1
            return func(*args, **(kwargs or {}))

    call()
    with Count():
        call()
    return found

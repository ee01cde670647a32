"""What a run counts: steps, accepted lengths, calls and time of every op, pool occupancy."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any


class OpClock:
    """Counts the calls of every op of this library and the wall time spent in them, wrapper included."""

    def __init__(self) -> None:
        self._nanoseconds: defaultdict[str, list[int]] = defaultdict(list)

    @property
    def calls(self) -> Counter[str]:
        """Calls of every op so far."""
        return Counter({name: len(samples) for name, samples in self._nanoseconds.items()})

    def wrap(self, op: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
        """The same callable, counted under ``name`` (default: its own)."""
        key = name or op.__name__

        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter_ns()
            try:
                return op(*args, **kwargs)
            finally:
                self._nanoseconds[key].append(time.perf_counter_ns() - started)

        return timed

    def microseconds_per_call(self) -> dict[str, float]:
        """Median wall time of one call of every op, in microseconds."""
        return {name: median(samples) / 1e3 for name, samples in self._nanoseconds.items()}

    def table(self) -> str:
        """Calls and time of every op, the most expensive first, as text."""
        typical = self.microseconds_per_call()
        lines = [f"{'op':34} {'calls':>7} {'median us':>10} {'total ms':>9}"]
        for name, samples in sorted(self._nanoseconds.items(), key=lambda item: -sum(item[1])):
            lines.append(f"{name:34} {len(samples):7d} {typical[name]:10.1f} {sum(samples) / 1e6:9.2f}")
        return "\n".join(lines)


@dataclass
class RunStats:
    """Counts over one ``Runner.generate`` call.

    Attributes:
        prefill_steps, verify_steps: forwards of the target, each over a ragged batch.
        draft_extend_passes, draft_passes: forwards of the MTP layer over accepted tokens, and over one guess a row.
        prefill_tokens, verify_tokens: tokens in those forwards, padding rows excluded.
        shared_tokens: tokens of prompts that were not prefilled, because another request had them in the cache.
        accepted: how often one row's verify accepted 1, 2, .. n of its tokens.
        emitted_tokens: tokens handed to requests, the first one after prefill included.
        peak_in_flight: most steps that were launched and not read; above 1 only with overlapped scheduling.
        discarded_rows: rows of steps that were launched before the host knew that their request had ended.
        retractions: how often a running request was stopped to make room; ``recomputed_tokens``: the committed tokens
            that this lost, which ``prefill_tokens`` counts again.
        peak_pages: most pages owned at once, by pool; ``total_pages``: usable pages.
        final_pages: pages still owned when everything has finished; all zero unless something leaked.
    """

    prefill_steps: int = 0
    verify_steps: int = 0
    draft_extend_passes: int = 0
    draft_passes: int = 0
    prefill_tokens: int = 0
    verify_tokens: int = 0
    shared_tokens: int = 0
    emitted_tokens: int = 0
    peak_in_flight: int = 1
    discarded_rows: int = 0
    retractions: int = 0
    recomputed_tokens: int = 0
    peak_running: int = 0
    accepted: Counter[int] = field(default_factory=Counter)
    peak_pages: dict[str, int] = field(default_factory=dict)
    final_pages: dict[str, int] = field(default_factory=dict)
    total_pages: dict[str, int] = field(default_factory=dict)
    ops: OpClock = field(default_factory=OpClock)

    def tokens_per_step(self) -> float:
        """Mean accepted length of a row's verify; plain decoding gives 1."""
        rows = sum(self.accepted.values())
        return sum(length * count for length, count in self.accepted.items()) / rows if rows else 0.0

    def observe_pools(self, available: dict[str, int]) -> None:
        """Updates the occupancy from the free pages of every pool."""
        for pool, free in available.items():
            owned = self.total_pages[pool] - free
            self.peak_pages[pool] = max(self.peak_pages.get(pool, 0), owned)
            self.final_pages[pool] = owned

    def histogram(self) -> str:
        """The accepted lengths as text, one bar a length."""
        rows = sum(self.accepted.values())
        lines = []
        for length in range(1, max(self.accepted, default=0) + 1):
            count = self.accepted[length]
            lines.append(f"{length:3d} {count:6d} {'#' * round(40 * count / rows)}")
        return "\n".join(lines)

"""Overlapped scheduling: every step is launched before the host has read the results of the one before.

The host knows of a running request only bounds: what it has read, and that each step in flight commits 1 to its width.
Lengths, newest tokens and first guesses stay on the device and go from step to step there (docs/spec.md, overlapped
scheduling).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from dsv4_npu_ops import KVLayout, PoolExhausted
from dsv4_npu_ops.mtp.batch import Batch
from dsv4_npu_ops.mtp.readback import Readback
from dsv4_npu_ops.mtp.run import Run, accept
from dsv4_npu_ops.mtp.scheduler import Running

STEPS_IN_FLIGHT = 2
"""Most steps whose results the host has not read: the one that it launches, and the one before."""


@dataclass(frozen=True)
class InFlight:
    """A step that was launched and not read.

    Attributes:
        rows: its requests; some may have ended before, which the host learnt too late.
        widths: most tokens that each of them commits beyond what the host knows: a verify's inputs, 0 in prefill.
        samples: whether each row gets at least one token; a prefill step gives one to rows whose prompt is done.
        results: ``[len(rows), 1 + Q]``: accepted length, then the sampled tokens.
    """

    rows: list[Running]
    widths: list[int]
    samples: list[bool]
    results: Readback


@dataclass
class Ahead:
    """What the steps in flight do to a request: most tokens that they commit, fewest that they sample."""

    most_committed: int = 0
    fewest_sampled: int = 0


class OverlappedRun(Run):
    """The steps of one ``generate`` call, launched one step ahead of what the host knows.

    A request that ended is noticed one step late; what its extra step computed is discarded. Pages are allocated for
    the longest and released for the shortest length that is possible.

    Args:
        layout: rows of the tables, longest context.
        others: the arguments of ``Run``.
    """

    def __init__(self, layout: KVLayout, *others: Any, **options: Any) -> None:
        super().__init__(layout, *others, **options)
        # By request row; padding rows of a batch use the entry behind the last, which stays 0.
        self._no_row = layout.max_requests
        self._lens = self._builder.ints([0] * (layout.max_requests + 1))
        self._newest = self._lens.long()
        self._in_flight: deque[InFlight] = deque()

    def prefill(self, rows: list[Running]) -> None:
        """One chunk of every row's prompt; rows whose prompt is done can be verified before their token is read."""
        self._launch_or_settle(rows, self._prefill_ahead)

    def verify(self, rows: list[Running]) -> None:
        """Drafts, verifies and commits on the device, then reads the step before.

        Near the longest context a row may have no room for another step until the host knows its length: then nothing
        is launched, and the host reads all there is.
        """
        self._launch_or_settle(rows, self._verify_ahead)

    def _launch_or_settle(self, rows: list[Running], launch: Callable[[list[Running]], bool]) -> None:
        try:
            launched = launch(rows)
        except PoolExhausted:
            # A launch allocates first, so nothing has happened. Known lengths and ended requests may make room.
            if not self._in_flight:
                raise
            launched = False
        self._stats.peak_in_flight = max(self._stats.peak_in_flight, len(self._in_flight))
        while len(self._in_flight) > int(launched):
            self._settle(self._in_flight.popleft())

    def _ahead(self, rows: list[Running]) -> list[Ahead]:
        ahead = {id(running): Ahead() for running in rows}
        for step in self._in_flight:
            for running, width, samples in zip(step.rows, step.widths, step.samples, strict=True):
                if id(running) in ahead:
                    ahead[id(running)].most_committed += width
                    ahead[id(running)].fewest_sampled += int(samples)
        return [ahead[id(running)] for running in rows]

    def _prefill_ahead(self, rows: list[Running]) -> bool:
        sampled = self._launch_prefill(rows)
        owners = self._builder.ints([running.row for running in rows]).long()
        self._lens[owners] = self._builder.ints([running.committed for running in rows])
        # A request that resumes after a retraction knows its newest token.
        known = self._builder.ints([running.generated[-1] if running.generated else -1 for running in rows]).long()
        self._newest[owners] = torch.where(known < 0, sampled, known)
        samples = [not running.prefilling and not running.generated for running in rows]
        results = torch.stack([self._builder.ints([int(s) for s in samples]).long(), sampled], dim=1)
        self._in_flight.append(InFlight(rows, [0] * len(rows), samples, Readback(results)))
        return True

    def _verify_ahead(self, rows: list[Running]) -> bool:
        going = [
            (running, ahead)
            for running, ahead in zip(rows, self._ahead(rows), strict=True)
            if not running.surely_ends_within(ahead.fewest_sampled, self._max_context_len)
        ]
        rows = [running for running, _ in going]
        longest = [running.committed + ahead.most_committed for running, ahead in going]
        widths = [
            min(running.request.num_draft_tokens, self._max_context_len - 1 - length)
            for running, length in zip(rows, longest, strict=True)
        ]
        if not rows or min(widths) < 1:
            return False
        pool_rows = [running.row for running in rows]
        self._reserve_extend(pool_rows, longest, [a + b for a, b in zip(longest, widths, strict=True)])
        batch = Batch.padded(pool_rows, longest, widths, self._bucket)
        owners = self._builder.ints(pool_rows + [self._no_row] * (len(batch.rows) - len(rows))).long()
        batch = replace(batch, device_lens=self._lens[owners])
        verified = self._launch_verify(rows, batch, self._newest[owners])
        accepted, tokens = accept(verified)
        hidden = None
        if self._drafter is not None:
            hidden = self._drafter.extend(verified.step, verified.streams, verified.greedy)
        self._lens[owners], self._newest[owners], hidden = self._builder.advance(
            batch, verified.step, accepted, verified.greedy, hidden
        )
        if self._drafter is not None and hidden is not None:
            self._drafter.remember(pool_rows, hidden[: batch.live])
        results = torch.cat([accepted[:, None], tokens], dim=1)[: batch.live]
        self._in_flight.append(InFlight(rows, widths, [True] * len(rows), Readback(results)))
        return True

    def _settle(self, step: InFlight) -> None:
        """Reads a step's results; its requests go on by what they accepted, or have ended."""
        kept = []
        verified = any(step.widths)
        for running, (accepted, *tokens) in zip(step.rows, step.results.read(), strict=True):
            if running.finish_reason:
                continue
            if verified:
                self._commit(running, tokens[:accepted])
                kept += [running] * (not running.finish_reason)
            elif accepted:
                self._stats.emitted_tokens += running.take(tokens, self._eos, self._max_context_len)
            if running.finish_reason:
                self._stats.discarded_rows += self._ahead([running])[0].fewest_sampled
        if kept:
            self._evict([running.row for running in kept], [running.committed for running in kept])

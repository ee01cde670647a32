"""Requests, and which of them may run: first come, first served, within what the pools can hold."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from dsv4_npu_ops import KVLayout, peak_pages
from dsv4_npu_ops.layout import POOLS

Admission = Literal["reserved", "optimistic"]
"""How many requests run at once: as many as fit for their whole lives, or as many as fit now (docs/spec.md, memory
pressure)."""


@dataclass(frozen=True)
class Request:
    """One prompt and how to continue it.

    Attributes:
        index: position in the caller's list.
        prompt: token ids, at least one.
        max_new_tokens: tokens to generate, at least one.
        num_draft_tokens: tokens per verify, the last sampled one included (n); 1 decodes without guesses.
        chunk_size: most prompt tokens per prefill step.
        arrival: scheduler round in which the request shows up.
        steps_in_flight: steps that may be launched before the results of the first of them are known; each reserves n.
    """

    index: int
    prompt: list[int]
    max_new_tokens: int
    num_draft_tokens: int
    chunk_size: int
    arrival: int = 0
    steps_in_flight: int = 1

    @property
    def reserve(self) -> int:
        """Most tokens that are allocated beyond what is known to be committed."""
        return self.num_draft_tokens * self.steps_in_flight


@dataclass
class Running:
    """A request, from its place in the queue to its end.

    Attributes:
        pages: most pages that it can own at once, by pool.
        prompt: tokens to prefill: the request's prompt, and after a retraction all that had been committed.
        chunk_size: most of them per prefill step.
        row: its row in the request tables; -1 while it waits.
        committed: tokens whose KV and state are final in the cache (L).
        generated: tokens handed out; the last one is not cached yet.
        accepted: accepted length of each of its verifies.
        retractions: how often it lost its row and pages to older requests.
        finish_reason: ``eos``, ``max_new_tokens`` or ``max_context_len``; None before.
    """

    request: Request
    pages: dict[str, int]
    prompt: list[int]
    chunk_size: int
    row: int = -1
    committed: int = 0
    generated: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    retractions: int = 0
    finish_reason: str | None = None

    @property
    def prefilling(self) -> bool:
        return self.committed < len(self.prompt)

    @property
    def next_len(self) -> int:
        """Tokens in the cache after its next step, rejected ones included; the longest context apart."""
        if self.prefilling:
            return min(len(self.prompt), self.committed + self.chunk_size)
        return self.committed + self.request.reserve

    def surely_ends_within(self, tokens: int, max_context_len: int) -> bool:
        """Whether it ends with the next ``tokens`` sampled ones at the latest, whatever they are, or has ended."""
        generated = len(self.generated) + tokens
        full = len(self.request.prompt) + generated >= max_context_len
        return bool(self.finish_reason) or full or generated >= self.request.max_new_tokens

    def take(self, tokens: list[int], eos: frozenset[int], max_context_len: int) -> int:
        """Appends tokens up to the first one that ends the request; returns how many were taken."""
        for taken, token in enumerate(tokens, start=1):
            self.generated.append(token)
            if token in eos:
                self.finish_reason = "eos"
            elif len(self.generated) == self.request.max_new_tokens:
                self.finish_reason = "max_new_tokens"
            elif len(self.request.prompt) + len(self.generated) == max_context_len:
                self.finish_reason = "max_context_len"
            if self.finish_reason:
                return taken
        return len(tokens)


_STATE_TOKENS = {"c4_state": 7, "c128_state": 127}
"""Most tokens of unfinished input that a ratio's open group still reads (docs/spec.md, windows)."""


def _span_pages(tokens: int, page_size: int) -> int:
    """Most pages that an interval of ``tokens`` positions can touch."""
    return (tokens + page_size - 2) // page_size + 1 if tokens else 0


def lifetime_pages(request: Request, layout: KVLayout) -> dict[str, int]:
    """The most pages of every pool that a request can own at once, also after a retraction (docs/capacity.md).

    What it then prefills is longer than its prompt. ``_resume_chunk`` keeps to the sliding window that is counted here;
    its states are counted for any chunk.
    """

    def most(chunk_size: int) -> dict[str, int]:
        return peak_pages(
            min(len(request.prompt) + request.max_new_tokens + request.reserve, layout.max_context_len),
            page_size={pool: layout.page_size_of(pool) for pool in POOLS if layout.has_pool(pool)},
            sliding_window=layout.sliding_window,
            chunk_size=chunk_size,
            num_draft_tokens=request.num_draft_tokens,
            steps_in_flight=request.steps_in_flight,
        )

    pages = most(request.chunk_size)
    if "swa" in pages:
        pages["swa"] = most(min(request.chunk_size, len(request.prompt)))["swa"]
    return pages


def _pages_between(begin: int, end: int, most: Mapping[str, int], layout: KVLayout) -> dict[str, int]:
    """Pages of every pool that growth from ``begin`` to ``end`` tokens starts, at most those of a lifetime."""
    before, after = layout.pages_needed(begin), layout.pages_needed(end)
    return {pool: min(pages, after[pool] - before[pool]) for pool, pages in most.items()}


def _resume_chunk(request: Request, layout: KVLayout) -> int:
    """Tokens per prefill step of a retracted request: one that has the pools to itself must be able to resume.

    Of the pools, only ``swa`` has to hold a chunk beside what ``lifetime_pages`` counts anyway.
    """
    counted = max(min(request.chunk_size, len(request.prompt)), request.reserve)
    if not layout.has_pool("swa"):
        return counted
    spare = (layout.num_pages["swa"] - 1) * layout.page_size_of("swa") + 1 - layout.sliding_window
    return min(request.chunk_size, max(counted, spare))


class Scheduler:
    """Admits requests in order of arrival, and under optimistic admission takes the youngest back when a pool runs dry.

    Args:
        layout: rows and pages there are.
        requests: served in this order among those that have arrived.
        admission: ``reserved`` admits a request while rows and pages for its whole life are left, so that a running
            one never has to stop; ``optimistic`` while its next step fits beside those of the running ones.

    Raises:
        ValueError: a request could never run: too long for the tables, or for a pool even when it is empty; or the
            admission is unknown.
    """

    def __init__(self, layout: KVLayout, requests: list[Request], admission: Admission = "reserved") -> None:
        if admission not in get_args(Admission):
            raise ValueError(f"admission: expected one of {', '.join(get_args(Admission))}, got {admission!r}")
        self._layout, self._admission = layout, admission
        self._rows = deque(range(layout.max_requests))
        for request in requests:
            self._check(request)
        self._waiting = deque(
            Running(request, lifetime_pages(request, layout), request.prompt, request.chunk_size)
            for request in sorted(requests, key=lambda request: request.arrival)
        )
        self.running: list[Running] = []
        """In the order of arrival: the last one is the youngest."""

    def _check(self, request: Request) -> None:
        length, longest = len(request.prompt), self._layout.max_context_len
        if not 1 <= length < longest:
            raise ValueError(
                f"prompts[{request.index}]: expected 1 to {longest - 1} tokens (max_context_len - 1), got {length}"
            )
        for name in ("max_new_tokens", "num_draft_tokens", "chunk_size"):
            if getattr(request, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(request, name)}")
        for pool, pages in lifetime_pages(request, self._layout).items():
            if pages > self._layout.num_pages[pool]:
                raise ValueError(
                    f"prompts[{request.index}]: can never run, it may need {pages} pages of pool {pool}, "
                    f"which has {self._layout.num_pages[pool]}"
                )

    @property
    def unfinished(self) -> bool:
        return bool(self._waiting or self.running)

    def admit(self, now: int, free_pages: Mapping[str, int]) -> list[Running]:
        """Starts waiting requests in order until one does not fit, and returns them.

        Args:
            now: the scheduler's round; later arrivals wait.
            free_pages: what every pool has now.
        """
        left, before = self._left(free_pages), len(self.running)
        while self._waiting and self._waiting[0].request.arrival <= now and self._rows:
            pages = self._pages_to_start(self._waiting[0])
            # Nothing is taken from one that has the pools to itself: it was checked to fit.
            if self.running and any(needed > left[pool] for pool, needed in pages.items()):
                break
            left = {pool: left[pool] - needed for pool, needed in pages.items()}
            started = self._waiting.popleft()
            started.row = self._rows.popleft()
            self.running.append(started)
        return self.running[before:]

    def _left(self, free_pages: Mapping[str, int]) -> dict[str, int]:
        """Pages of every pool that the running requests do not need."""
        if self._admission == "reserved":
            needs, left = [running.pages for running in self.running], dict(self._layout.num_pages)
        else:
            needs, left = [self._next_step_pages(running) for running in self.running], dict(free_pages)
        return {pool: pages - sum(need[pool] for need in needs) for pool, pages in left.items()}

    def _next_step_pages(self, running: Running) -> dict[str, int]:
        most = dict(running.pages)
        if running.prefilling:
            for pool in most.keys() & _STATE_TOKENS.keys():
                tail = _span_pages(_STATE_TOKENS[pool], self._layout.page_size_of(pool))
                most[pool] = min(most[pool], tail)
        return _pages_between(running.committed, running.next_len, most, self._layout)

    def _pages_to_start(self, waiting: Running) -> dict[str, int]:
        if self._admission == "reserved":
            return waiting.pages
        if waiting.retractions:
            # Room for all that it lost: it would soon be retracted again if it came back for one chunk.
            return _pages_between(0, len(waiting.prompt) + waiting.request.reserve, waiting.pages, self._layout)
        return self._next_step_pages(waiting)

    @property
    def retractable(self) -> Running | None:
        """The youngest running request, to make room when a pool has run dry.

        None when nobody should have to stop: every page is reserved, or only the oldest is left, for which the pools
        are large enough. So the oldest goes on in every round.
        """
        return self.running[-1] if self._admission == "optimistic" and len(self.running) > 1 else None

    def retract(self, running: Running) -> None:
        """Puts a running request, whose row the caller has freed, back to the front of the queue.

        What it generated stays. Its prompt and all but the last generated token are prefilled when it starts again;
        then it stands where it stood.
        """
        self.running.remove(running)
        self._rows.append(running.row)
        running.row, running.committed = -1, 0
        running.prompt = running.request.prompt + running.generated[:-1]
        running.chunk_size = _resume_chunk(running.request, self._layout)
        running.retractions += 1
        self._waiting.appendleft(running)

    def release(self, finished: list[Running]) -> None:
        """Takes back the rows and pages of finished requests."""
        for running in finished:
            self.running.remove(running)
            self._rows.append(running.row)

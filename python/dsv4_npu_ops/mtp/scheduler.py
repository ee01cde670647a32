"""Requests, and which of them may run: first come, first served, within what the pools can hold."""

from collections import deque
from dataclasses import dataclass, field

from dsv4_npu_ops import KVLayout
from dsv4_npu_ops.cache import POOLS


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
    """

    index: int
    prompt: list[int]
    max_new_tokens: int
    num_draft_tokens: int
    chunk_size: int
    arrival: int = 0


@dataclass
class Running:
    """An admitted request.

    Attributes:
        row: its row in the request tables.
        pages: most pages that it can own at once, by pool.
        committed: tokens whose KV and state are final in the cache (L).
        generated: tokens handed out; the last one is not cached yet.
        accepted: accepted length of each of its verifies.
        finish_reason: ``eos``, ``max_new_tokens`` or ``max_context_len``; None while it runs.
    """

    request: Request
    row: int
    pages: dict[str, int]
    committed: int = 0
    generated: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    finish_reason: str | None = None

    @property
    def prefilling(self) -> bool:
        return self.committed < len(self.request.prompt)

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


def _span_pages(tokens: int, page_size: int) -> int:
    """Most pages that an interval of ``tokens`` positions can touch."""
    return (tokens + page_size - 2) // page_size + 1 if tokens else 0


def lifetime_pages(request: Request, layout: KVLayout) -> dict[str, int]:
    """The most pages of every pool that a request can own at once (docs/spec.md, windows).

    ``full``, ``c4`` and ``c128`` grow to the end. The others keep a window and the step's own tokens: a verify reserves
    all of its tokens, a prefill chunk all of its sliding window but only the tail of its state.
    """
    page, n = layout.page_size, request.num_draft_tokens
    longest = min(len(request.prompt) + request.max_new_tokens + n, layout.max_context_len)
    chunk = min(request.chunk_size, len(request.prompt))
    every = {unit: -(-(longest // unit) // page) for unit in (1, 4, 128)}
    pages = {"full": every[1], "c4": every[4], "c128": every[128]}
    pages["swa"] = min(every[1], _span_pages(layout.sliding_window + max(chunk, n), page))
    for pool, kept in (("c4_state", 7), ("c128_state", 127)):
        # Between two chunks both the old tail and the new one are owned.
        pages[pool] = min(every[1], max(2 * _span_pages(kept, page), _span_pages(kept + n, page)))
    return {pool: pages[pool] for pool in POOLS if layout.has_pool(pool)}


class Scheduler:
    """Admits requests while rows and pages for their whole life are left, so that a running one never has to stop.

    Args:
        layout: rows and pages there are.
        requests: served in this order among those that have arrived.

    Raises:
        ValueError: a request could never run: too long for the tables, or for a pool even when it is empty.
    """

    def __init__(self, layout: KVLayout, requests: list[Request]) -> None:
        self._layout = layout
        self._rows = deque(range(layout.max_requests))
        self._left = dict(layout.num_pages)
        self._waiting = deque(sorted(requests, key=lambda request: request.arrival))
        self.running: list[Running] = []
        for request in requests:
            self._check(request)

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

    def admit(self, now: int) -> None:
        """Starts waiting requests in order until one does not fit."""
        while self._waiting and self._waiting[0].arrival <= now and self._rows:
            pages = lifetime_pages(self._waiting[0], self._layout)
            if any(needed > self._left[pool] for pool, needed in pages.items()):
                return
            for pool, needed in pages.items():
                self._left[pool] -= needed
            self.running.append(Running(self._waiting.popleft(), self._rows.popleft(), pages))

    def release(self, finished: list[Running]) -> None:
        """Takes back the rows and pages of finished requests."""
        for running in finished:
            self.running.remove(running)
            self._rows.append(running.row)
            for pool, pages in running.pages.items():
                self._left[pool] += pages

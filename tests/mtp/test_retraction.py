"""Optimistic admission: a request that is retracted when a pool runs dry resumes with the tokens it would have had."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtp.conftest import NEW_TOKENS
from mtp.poison import poisoned_runner
from mtp.small_models import VOCAB_SIZE, layout_of, prompts_of
from mtp.truth import forced

from dsv4_npu_ops import KVAllocator, KVLayout, PoolExhausted, RequestTables
from dsv4_npu_ops.layout import POOLS
from dsv4_npu_ops.mtp.scheduler import Request, Scheduler, lifetime_pages

LONGEST = 330


class Load:
    """A random batch, and what the runner makes of it with given pools."""

    def __init__(self, model, truth, page_size: int, lengths: tuple[int, ...]) -> None:
        choose = random.Random(page_size)
        self.model, self.page_size = model, page_size
        self.prompts = [prompts_of([length], seed=length)[0] for length in lengths]
        self.texts = [truth(prompt)[0] for prompt in self.prompts]
        self.widths = [choose.randint(4, 6) for _ in lengths]
        self.chunks = [330, 60, 15][: len(lengths)]
        self.arrivals = [0, 0, 2][: len(lengths)]
        self.ample = layout_of(page_size, len(lengths), LONGEST).num_pages
        self.guesses = {}

    def tight(self, scarce: str) -> dict[str, int]:
        """Pages of which one pool has what the most demanding request may own, and no more."""
        probe = KVLayout(self.page_size, 128, 1, LONGEST, self.ample)
        requests = [
            Request(i, prompt, NEW_TOKENS, n, chunk)
            for i, (prompt, n, chunk) in enumerate(zip(self.prompts, self.widths, self.chunks, strict=True))
        ]
        return self.ample | {scarce: max(lifetime_pages(request, probe)[scarce] for request in requests)}

    def run(self, num_pages: dict[str, int], admission: str, progress=None):
        """Completions and statistics; checks that the MTP layer guesses what it guessed in any run before."""
        accept = forced(self.texts, lambda request, start, width: 1 + (3 * request + start) % width, VOCAB_SIZE)

        def script(request, generated, guesses):
            assert self.guesses.setdefault((request, len(generated)), guesses) == guesses
            return accept(request, generated, guesses)

        layout = KVLayout(self.page_size, 128, len(self.prompts), LONGEST, num_pages)
        runner = poisoned_runner(*self.model, layout, bucket=2)
        completions, stats = runner.generate(
            self.prompts,
            NEW_TOKENS,
            self.widths,
            self.chunks,
            arrivals=self.arrivals,
            admission=admission,
            script=script,
            progress=progress,
        )
        assert [completion.tokens for completion in completions] == self.texts
        assert all(runner.allocator.available_pages(pool) == num_pages[pool] for pool in POOLS)
        assert not any(stats.final_pages.values())
        return completions, stats


# Page size and prompt lengths with which requests that are admitted meet in this pool later. A page of c128 holds
# page_size * 128 tokens, so that only long prompts reach a second one.
MEETINGS = dict.fromkeys(POOLS, (4, (37, 21, 50))) | {"c128": (1, (250, 230)), "c4_state": (1, (37, 21, 50))}


@pytest.fixture(scope="module")
def loads(double_model, double_truth):
    """A load for every page size and lengths, with its run over pools that hold everything."""
    known = {}

    def get(page_size, lengths):
        if (page_size, lengths) not in known:
            load = Load(double_model, double_truth, page_size, lengths)
            known[page_size, lengths] = load, *load.run(load.ample, "optimistic")
        return known[page_size, lengths]

    return get


# These two have loads of their own.
OTHER_LOADS = [pytest.param(pool, marks=pytest.mark.thorough) for pool in ("c128", "c4_state")]


@pytest.mark.parametrize("scarce", ["full", "swa", "c4", "c128_state", *OTHER_LOADS])
def test_tokens_guesses_and_acceptance_are_those_of_ample_pools(loads, scarce):
    load, plain, ample = loads(*MEETINGS[scarce])
    assert ample.retractions == ample.recomputed_tokens == 0
    completions, stats = load.run(load.tight(scarce), "optimistic")
    assert completions == plain
    assert stats.accepted == ample.accepted and stats.emitted_tokens == ample.emitted_tokens
    assert stats.retractions > 0
    assert ample.prefill_tokens <= stats.prefill_tokens <= ample.prefill_tokens + stats.recomputed_tokens


def test_all_pools_scarce_at_once(loads):
    load, plain, _ = loads(*MEETINGS["full"])
    scarce = {pool: load.tight(pool)[pool] for pool in POOLS}
    # Two more, for the states of a second request: beside one that owns all of them none would be admitted.
    completions, stats = load.run(scarce | {"c4_state": scarce["c4_state"] + 2}, "optimistic")
    assert completions == plain and stats.retractions > 0


@given(data=st.data())
@settings(max_examples=20)
def test_every_request_ends_and_the_oldest_goes_on_in_every_round(data):
    """The scheduler over a real allocator, with accepted lengths from a source of integers instead of a model."""

    def integer(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    page_size, longest = data.draw(st.sampled_from([1, 4, 16, 64])), 300
    requests = [
        Request(i, [0] * integer(1, 200), integer(1, 60), integer(1, 6), integer(1, 200), integer(0, 30))
        for i in range(integer(1, 6))
    ]
    probe = KVLayout(page_size, 32, 1, longest, dict.fromkeys(POOLS, longest))
    lives = [lifetime_pages(request, probe) for request in requests]
    num_pages = {pool: max(life[pool] for life in lives) + integer(0, 3) for pool in POOLS}
    layout = KVLayout(page_size, 32, integer(1, 4), longest, num_pages)
    allocator = KVAllocator(layout, RequestTables(layout))
    scheduler = Scheduler(layout, requests, "optimistic")
    rounds, ended = 0, []
    while scheduler.unfinished:
        scheduler.admit(rounds, {pool: allocator.available_pages(pool) for pool in POOLS})
        rounds += 1
        assert scheduler.running or rounds <= 30
        order = [(running.request.arrival, running.request.index) for running in scheduler.running]
        assert order == sorted(order)
        oldest = scheduler.running[0] if scheduler.running else None
        before = oldest and (oldest.committed, len(oldest.generated))
        for prefilling in (True, False):
            for running in one_phase(scheduler, allocator, prefilling, longest, integer):
                allocator.free([running.row])
                scheduler.release([running])
                ended.append(running.request.index)
        assert oldest is None or oldest.finish_reason or (oldest.committed, len(oldest.generated)) > before
    assert sorted(ended) == [request.index for request in requests]
    assert all(allocator.available_pages(pool) == num_pages[pool] for pool in POOLS)


def one_phase(scheduler, allocator, prefilling, longest, integer):
    """Prefills or verifies whoever is due, retracting until it fits, like the runner; returns who has finished."""
    while batch := [running for running in scheduler.running if running.prefilling is prefilling]:
        rows, lens = [running.row for running in batch], [running.committed for running in batch]
        finals = [min(running.next_len, longest - (not prefilling)) for running in batch]
        try:
            (allocator.alloc_extend if prefilling else allocator.reserve_extend)(rows, lens, finals)
        except PoolExhausted:
            youngest = scheduler.retractable
            assert youngest is not None, "the oldest alone has run out of pages"
            allocator.free([youngest.row])
            scheduler.retract(youngest)
            continue
        for running, length, final in zip(batch, lens, finals, strict=True):
            grown = final - length if prefilling else integer(1, final - length)
            running.committed += grown
            if not prefilling or not (running.prefilling or running.generated):
                running.take([0] * (1 if prefilling else grown), frozenset(), longest)
        allocator.evict(rows, [running.committed for running in batch])
        return [running for running in batch if running.finish_reason]
    return []


def test_an_unknown_admission_is_refused(small_model):
    with pytest.raises(ValueError, match="admission: expected one of reserved, optimistic, got 'greedy'"):
        poisoned_runner(*small_model, layout_of(16)).generate([[1, 2]], 4, admission="greedy")

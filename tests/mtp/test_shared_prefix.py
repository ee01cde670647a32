"""Requests that start on the cached prefix of a running one get the tokens, guesses and accepted lengths they would
have had alone, and what is shared is never written."""

import pytest
import torch
from mtp.conftest import NEW_TOKENS
from mtp.poison import poisoned_runner, pool_tensors
from mtp.small_models import VOCAB_SIZE, layout_of, prompts_of
from mtp.truth import forced_on_device

from dsv4_npu_ops import KVLayout
from dsv4_npu_ops.layout import POOLS

MODEL_POOLS = [pool for pool in POOLS if pool != "full"]


class SharedPages:
    """Watches a runner: what pages hold when they are shared, and whether that changes before all owners have left."""

    def __init__(self, runner):
        self.runner, self.held, self.checked = runner, {}, dict.fromkeys(MODEL_POOLS, 0)
        self.starts = []
        self.watch("share_prefix", self.note_shared)
        for release in ("evict", "free"):
            self.watch(release, self.forget_released)

    def watch(self, name, after):
        call = getattr(self.runner.allocator, name)

        def watched(*args):
            self.compare()
            result = call(*args)
            after(result, *args)
            return result

        setattr(self.runner.allocator, name, watched)

    def pages_in_tables(self, pool, rows=slice(None)):
        return set(self.runner.tables.table(pool)[rows].flatten().tolist()) - {0}

    def content(self, pool, page):
        size = self.runner.tables.page_size_of(pool)
        return [tensor[page * size : (page + 1) * size].clone() for tensor in pool_tensors(self.runner, pool)]

    def note_shared(self, result, sources, targets, _):
        self.starts += result.starts
        for pool in MODEL_POOLS:
            for page in self.pages_in_tables(pool, sources) & self.pages_in_tables(pool, targets):
                self.held.setdefault((pool, page), self.content(pool, page))

    def compare(self):
        for (pool, page), before in self.held.items():
            for old, now in zip(before, self.content(pool, page), strict=True):
                assert torch.equal(old.nan_to_num(-1), now.nan_to_num(-1)), f"page {page} of {pool} was written"
            self.checked[pool] += 1

    def forget_released(self, *_):
        owned = {pool: self.pages_in_tables(pool) for pool in MODEL_POOLS}
        self.held = {(pool, page): before for (pool, page), before in self.held.items() if page in owned[pool]}


class Family:
    """Prompts with common beginnings, transformers' continuations of them, and runs over them.

    0 is the first; 1 is its continuation so far and goes on differently; 2 branches off inside 0's prompt; 3 is 0's
    prompt again; 4 is unlike all others; 5 goes on from 1.
    """

    def __init__(self, model, truth, length):
        self.model = model
        first, tails, other = prompts_of([length, 40, 35], seed=length)
        text = truth(first)[0]
        second = [*first, *text[:11], (text[11] + 1) % VOCAB_SIZE, *tails[:3]]
        branch = [*first[: length - 6], (first[length - 6] + 1) % VOCAB_SIZE, *tails[3:20]]
        self.prompts = [first, second, branch, first, other, [*second, *truth(second)[0][:6], *tails[20:]]]
        self.texts = [truth(prompt)[0] for prompt in self.prompts]

    def run(self, layout, share_prefixes, arrivals, limits, **options):
        """Completions, guesses by request and length, statistics and the watch."""
        runner = poisoned_runner(*self.model, layout, bucket=2)
        lengths = [len(prompt) for prompt in self.prompts]
        script = forced_on_device(lengths, self.texts, lambda request, generated, n: 1 + (3 * request + generated) % n)
        ends = [length + limit - 1 for length, limit in zip(lengths, limits, strict=True)]
        guesses = set()

        def noting(requests, committed, proposed):
            rows = zip(requests, committed.tolist(), proposed.tolist(), strict=True)
            # With overlapping, requests that have ended may guess once more.
            guesses.update((row, length, *own) for row, length, own in rows if length < ends[row])
            return script(requests, committed, proposed)

        watch = SharedPages(runner)
        completions, stats = runner.generate(
            self.prompts, limits, arrivals=arrivals, device_script=noting, share_prefixes=share_prefixes, **options
        )
        watch.compare()
        assert [completion.tokens for completion in completions] == [
            text[:limit] for text, limit in zip(self.texts, limits, strict=True)
        ]
        assert not any(stats.final_pages.values()) and not watch.held
        assert all(runner.allocator.available_pages(pool) == layout.num_pages[pool] for pool in POOLS)
        return completions, guesses, stats, watch


@pytest.fixture(scope="module")
def family(double_model, double_truth):
    return Family(double_model, double_truth, length=150)


@pytest.fixture(scope="module")
def alone(family):
    """Completions and guesses without sharing; neither depends on pages, chunks or overlapping."""
    known = {}

    def get(arrivals, limits):
        if (key := (*arrivals, *limits)) not in known:
            layout = layout_of(64, max_requests=6)
            options = dict(num_draft_tokens=DRAFT_TOKENS, chunk_size=200)
            completions, guesses, stats, _ = family.run(layout, False, arrivals, limits, **options)
            assert stats.shared_tokens == 0 and stats.prefill_tokens == sum(map(len, family.prompts))
            known[key] = completions, guesses
        return known[key]

    return get


DRAFT_TOKENS = 4

# Rounds in which requests arrive, and how many tokens each gets: sources that end before those that started on them do,
# while these decode; and sources that outlive them.
LEAVE_FIRST = [0, 6, 4, 5, 1, 9], [12, NEW_TOKENS, NEW_TOKENS, NEW_TOKENS, 9, NEW_TOKENS]
OUTLIVE = [0, 6, 4, 1, 1, 9], [NEW_TOKENS, 9, 5, 7, 9, 5]


@pytest.mark.parametrize(
    ("page_size", "chunk", "load", "overlap", "whole"),
    [
        pytest.param(16, 70, LEAVE_FIRST, False, {"swa", "c4", "c128_state"}, id="page16-leave-first"),
        pytest.param(16, 40, OUTLIVE, True, {"swa", "c4", "c128_state"}, id="page16-outlive-overlapped"),
        pytest.param(128, 140, LEAVE_FIRST, True, {"swa"}, id="page128-leave-first-overlapped"),
        pytest.param(1, 149, OUTLIVE, False, set(MODEL_POOLS), id="page1-outlive"),
    ],
)
def test_the_same_tokens_guesses_and_acceptance_as_without_sharing(
    family, alone, page_size, chunk, load, overlap, whole
):
    """whole: pools with pages that are shared, not only copied."""
    options = dict(num_draft_tokens=DRAFT_TOKENS, chunk_size=chunk, overlap=overlap)
    shared, guesses, stats, watch = family.run(layout_of(page_size, max_requests=6), True, *load, **options)
    assert (shared, guesses) == alone(*load)
    assert stats.prefill_tokens == sum(map(len, family.prompts)) - stats.shared_tokens
    assert stats.shared_tokens == sum(watch.starts) and len(watch.starts) >= 2, watch.starts
    assert page_size == 1 or any(start % page_size for start in watch.starts), "no page was copied"
    assert {pool for pool, count in watch.checked.items() if count} >= whole


def test_retraction_beside_shared_pages(family, alone):
    """Pools for little more than one request: who is retracted starts again on whoever still runs."""
    options = dict(num_draft_tokens=DRAFT_TOKENS, chunk_size=70)
    tight = KVLayout(16, 128, 6, 640, layout_of(16, max_requests=1, max_context_len=256).num_pages)
    shared, guesses, stats, watch = family.run(tight, True, *OUTLIVE, admission="optimistic", **options)
    assert (shared, guesses) == alone(*OUTLIVE)
    assert stats.retractions > 0 and len(watch.starts) > 1


def test_a_request_that_loses_its_place_before_its_first_step(family):
    """Four are admitted into as many free pages; copies take some, and the last, which shares nothing, has to wait."""
    layout = layout_of(16, max_requests=6)
    layout = KVLayout(16, 128, 6, 640, layout.num_pages | {"full": 14})
    options = dict(num_draft_tokens=DRAFT_TOKENS, chunk_size=[150, 16, 16, 16, 16, 16], admission="optimistic")
    _, _, stats, watch = family.run(layout, True, [0, 2, 2, 2, 2, 60], [9, 5, 5, 5, 5, 1], **options)
    assert stats.retractions > 0 and watch.starts


def test_pages_are_copied_whole_in_every_tensor_of_their_pool(small_model):
    runner = poisoned_runner(*small_model, layout_of(16))
    generator = torch.Generator().manual_seed(0)
    before = {}
    for pool in MODEL_POOLS:
        for tensor in pool_tensors(runner, pool):
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
        before[pool] = [tensor.clone() for tensor in pool_tensors(runner, pool)]
    pages = {pool: (torch.tensor([3, 1], dtype=torch.int32), torch.tensor([2, 4])) for pool in MODEL_POOLS}
    nothing = torch.empty(0, dtype=torch.int32)
    pages["full"] = (torch.tensor([1]), torch.tensor([2]))
    pages["c4_state"] = (nothing, nothing)
    runner.pools.copy_pages(pages)
    for pool in MODEL_POOLS:
        for old, now in zip(before[pool], pool_tensors(runner, pool), strict=True):
            for source, destination in zip(*(ids.tolist() for ids in pages[pool]), strict=True):
                old[destination * 16 : destination * 16 + 16] = old[source * 16 : source * 16 + 16]
            assert torch.equal(old, now), pool


def test_copies_in_an_unknown_pool_are_refused(small_model):
    runner = poisoned_runner(*small_model, layout_of(16))
    pages = torch.tensor([1], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"copies: expected pools of full, swa, .*, got 'c4state'"):
        runner.pools.copy_pages({"swa": (pages, pages + 1), "c4state": (pages, pages)})
    assert all(tensor.isnan().all() for tensor in pool_tensors(runner, "swa"))

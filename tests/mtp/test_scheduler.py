"""Requests join, wait, end and leave: pools that fill up, end-of-sequence, limits, errors."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mtp.conftest import NEW_TOKENS
from mtp.poison import poisoned_runner, pool_tensors, slots_of_pages
from mtp.small_models import VOCAB_SIZE, build, layout_of, prompts_of
from mtp.truth import forced

from dsv4_npu_ops import KVAllocator, KVLayout, RequestTables
from dsv4_npu_ops.layout import POOLS, RAW_TOKENS_PER_SLOT
from dsv4_npu_ops.mtp.runner import Runner
from dsv4_npu_ops.mtp.scheduler import Request, lifetime_pages

LENGTHS = [4, 129, 5, 257, 130, 3]


def accept_all(texts):
    """A script whose guesses are all right."""
    return forced(texts, lambda request, generated, width: width, VOCAB_SIZE)


@pytest.fixture(scope="module")
def served(small_model, truth):
    """Prompts, and transformers' continuations of them."""
    prompts = [prompts_of([length], seed=length)[0] for length in LENGTHS]
    return prompts, [truth(prompt)[0] for prompt in prompts]


def exact_layout(requests: list[Request], page_size: int) -> KVLayout:
    """Pools that hold the most demanding request and not a page more."""
    probe = layout_of(page_size)
    needs = [lifetime_pages(request, probe) for request in requests]
    return KVLayout(page_size, 128, 4, 640, {pool: max(need[pool] for need in needs) for pool in POOLS})


@pytest.mark.parametrize(
    ("page_size", "n", "chunk"),
    [
        (16, 8, 37),
        pytest.param(16, 3, 1000, marks=pytest.mark.thorough),
        pytest.param(64, 5, 7, marks=pytest.mark.thorough),
        (128, 4, 100),
    ],
)
def test_exhausted_pools_make_requests_wait_and_lose_nothing(small_model, served, page_size, n, chunk):
    prompts, texts = served
    layout = exact_layout([Request(i, prompt, NEW_TOKENS, n, chunk) for i, prompt in enumerate(prompts)], page_size)
    runner = poisoned_runner(*small_model, layout)
    completions, stats = runner.generate(prompts, NEW_TOKENS, n, chunk, script=accept_all(texts))
    assert [completion.tokens for completion in completions] == texts
    assert stats.peak_running < 4
    for pool in POOLS:
        assert 0 < stats.peak_pages[pool] <= layout.num_pages[pool]
        assert runner.allocator.available_pages(pool) == layout.num_pages[pool]


@given(
    page_size=st.sampled_from([1, 16, 64, 128]),
    prompt_len=st.integers(1, 300),
    max_new_tokens=st.integers(1, 40),
    n=st.integers(1, 8),
    chunk=st.integers(1, 200),
    data=st.data(),
)
@settings(max_examples=25)
def test_a_request_never_owns_more_pages_than_it_was_admitted_with(
    page_size, prompt_len, max_new_tokens, n, chunk, data
):
    request = Request(0, [0] * prompt_len, max_new_tokens, n, chunk)
    longest = 400
    probe = KVLayout(page_size, 128, 1, longest, dict.fromkeys(POOLS, longest))
    layout = KVLayout(page_size, 128, 1, longest, lifetime_pages(request, probe))
    allocator = KVAllocator(layout, RequestTables(layout))
    for begin in range(0, prompt_len, chunk):
        end = min(prompt_len, begin + chunk)
        allocator.alloc_extend([0], [begin], [end])
        allocator.evict([0], [end])
    committed, left = prompt_len, max_new_tokens - 1
    while left > 0:
        width = min(n, longest - 1 - committed)
        allocator.reserve_extend([0], [committed], [committed + width])
        accepted = data.draw(st.integers(1, width))
        committed, left = committed + accepted, left - accepted
        allocator.evict([0], [committed])
    allocator.free([0])
    assert all(allocator.available_pages(pool) == layout.num_pages[pool] for pool in POOLS)


def test_more_requests_than_rows_reuse_rows(small_model, served):
    prompts, texts = served
    runner = poisoned_runner(*small_model, layout_of(16, max_requests=2))
    for _ in range(2):
        completions, stats = runner.generate(
            prompts, NEW_TOKENS, 4, 50, arrivals=[9, 0, 3, 0, 1, 9], script=accept_all(texts)
        )
        assert [completion.tokens for completion in completions] == texts
        assert stats.peak_running == 2


def test_draft_lengths_chunks_and_limits_may_differ_per_request(small_model, served):
    prompts, texts = served
    runner = poisoned_runner(*small_model, layout_of(64, max_requests=6), bucket=4)
    limits, widths, chunks = [NEW_TOKENS, 1, 7, NEW_TOKENS, 13, 2], [1, 8, 3, 5, 2, 8], [1, 50, 2, 100, 640, 3]
    completions, _ = runner.generate(prompts, limits, widths, chunks, script=accept_all(texts))
    for completion, text, limit in zip(completions, texts, limits, strict=True):
        assert completion.tokens == text[:limit]
        assert completion.finish_reason == "max_new_tokens"


def test_end_of_sequence_inside_an_accepted_run(small_model, served):
    prompts, texts = served
    for place in (0, 3, 6):
        # The token at `place` of the first text ends whichever text it turns up in.
        eos = texts[0][place]
        runner = poisoned_runner(*small_model, layout_of(16))
        completions, stats = runner.generate(prompts, NEW_TOKENS, 8, 64, eos_token_ids=[eos], script=accept_all(texts))
        for completion, text in zip(completions, texts, strict=True):
            ends = eos in text
            assert completion.tokens == (text[: text.index(eos) + 1] if ends else text)
            assert completion.finish_reason == ("eos" if ends else "max_new_tokens")
        assert stats.emitted_tokens == sum(len(completion.tokens) for completion in completions)


@pytest.mark.parametrize("spare", [1, 2, 5, 9, NEW_TOKENS])
def test_widths_are_clipped_at_the_longest_context(small_model, served, spare):
    prompts, texts = served
    longest = len(prompts[3]) + spare
    runner = poisoned_runner(*small_model, layout_of(16, max_requests=6, max_context_len=longest))
    completions, _ = runner.generate(prompts, NEW_TOKENS, 8, 100, script=accept_all(texts))
    for prompt, completion, text in zip(prompts, completions, texts, strict=True):
        assert completion.tokens == text[: longest - len(prompt)]
    assert completions[3].finish_reason == ("max_context_len" if spare < NEW_TOKENS else "max_new_tokens")


def test_padding_rows_write_only_the_dummy_slot(small_model):
    target, nextn = small_model
    layout = KVLayout(16, 128, 4, 64, dict.fromkeys(POOLS, 5))
    runner = Runner(target, nextn, layout, bucket=4)
    before = {pool: [tensor.clone() for tensor in pool_tensors(runner, pool)] for pool in POOLS}
    used = {pool: {0} for pool in POOLS}

    def note_slots(rows, step, streams, logits):
        assert step.metadata.cu_seqlens.shape[0] == (2 if rows[0].prefilling else 5)
        length = runner.allocator.allocated_len(rows[0].row)
        for pool in POOLS:
            slots = slots_of_pages(runner, pool, runner.tables.table(pool)[rows[0].row])
            used[pool] |= set(slots[: length // RAW_TOKENS_PER_SLOT[pool]].tolist())

    runner.generate(prompts_of([5], seed=5), 8, 3, observer=note_slots)
    for pool in POOLS:
        for old, new in zip(before[pool], pool_tensors(runner, pool), strict=True):
            changed = (old != new).flatten(1).any(dim=1).nonzero().flatten().tolist()
            assert set(changed) <= used[pool]
            assert pool in ("full", "c128") or len(changed) > 1


def test_statistics_add_up(small_model, served):
    prompts, texts = served
    runner = poisoned_runner(*small_model, layout_of(16, max_requests=6))
    seen = []
    completions, stats = runner.generate(
        prompts,
        NEW_TOKENS,
        4,
        100,
        script=accept_all(texts),
        progress=lambda running: seen.append(running.emitted_tokens),
    )
    assert seen == sorted(seen) and seen[-1] == stats.emitted_tokens == NEW_TOKENS * len(prompts)
    assert stats.prefill_tokens == sum(LENGTHS)
    assert sum(stats.accepted.values()) == sum(len(completion.accepted) for completion in completions)
    assert stats.verify_tokens == 4 * sum(stats.accepted.values())
    assert 3 < stats.tokens_per_step() <= 4
    calls = stats.ops.calls
    assert calls["build_verify_step"] == calls["reserve_extend"] == stats.verify_steps
    assert calls["alloc_extend"] == calls["build_compress_metadata_prefill"] == stats.prefill_steps
    assert calls["build_draft_steps"] == stats.verify_steps and stats.draft_passes == 2 * stats.verify_steps
    assert calls["build_compress_metadata_verify"] == calls["flatten_verify_bundle"]
    assert calls["free"] >= 1 and calls["evict"] >= stats.prefill_steps
    assert set(stats.ops.microseconds_per_call()) == set(calls)
    assert "build_verify_step" in stats.ops.table() and "#" in stats.histogram()


def test_a_verify_step_without_drafting_is_four_launches_and_the_rotations(small_model, served):
    runner = poisoned_runner(*small_model, layout_of(16, max_requests=6))
    _, stats = runner.generate(served[0], NEW_TOKENS, 1)
    calls = stats.ops.calls
    bookkeeping = calls["reserve_extend"] + calls["build_verify_step"] + calls["rope_gather"]
    # Prefill gathers once a base, and once a ratio that completes groups.
    assert bookkeeping <= 4 * stats.verify_steps + 4 * stats.prefill_steps


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(prompts=[[]]), r"prompts\[0\]: expected 1 to 639 tokens .*, got 0"),
        (dict(prompts=[[1] * 640]), r"prompts\[0\]: expected 1 to 639 tokens .*, got 640"),
        (dict(max_new_tokens=0), "max_new_tokens: expected at least 1, got 0"),
        (dict(num_draft_tokens=0), "num_draft_tokens: expected at least 1, got 0"),
        (dict(chunk_size=0), "chunk_size: expected at least 1, got 0"),
        (dict(max_new_tokens=[1, 2]), "max_new_tokens: expected one value, or one for each of 1 prompts, got 2"),
    ],
)
def test_bad_requests_are_refused_before_anything_runs(small_model, arguments, message):
    runner = poisoned_runner(*small_model, layout_of(16))
    with pytest.raises(ValueError, match=message):
        runner.generate(**{"prompts": [[1, 2, 3]], "max_new_tokens": 4, **arguments})
    assert all(not runner.tables.table(pool).any() for pool in POOLS)


def test_a_request_that_can_never_fit_says_which_pool(small_model):
    pages = dict(layout_of(16).num_pages) | {"c4": 3}
    runner = poisoned_runner(*small_model, KVLayout(16, 128, 4, 640, pages))
    with pytest.raises(ValueError, match=r"prompts\[1\]: can never run, it may need 5 pages of pool c4, which has 3"):
        runner.generate([[1, 2], [1] * 290], 8, 4)


def test_models_and_layouts_that_do_not_match_are_refused(small_model):
    target, nextn = small_model
    with pytest.raises(ValueError, match="sliding_window: expected the model's 128, got 64"):
        Runner(target, nextn, KVLayout(16, 64, 4, 640, layout_of(16).num_pages))
    without_c4 = {pool: pages for pool, pages in layout_of(16).num_pages.items() if pool != "c4"}
    with pytest.raises(ValueError, match="expected an entry for c4, which this model needs, got none"):
        Runner(target, nextn, KVLayout(16, 128, 4, 640, without_c4))
    with pytest.raises(ValueError, match="expected 1 for a runner without an MTP layer or script, got more"):
        Runner(target, None, layout_of(16)).generate([[1, 2, 3]], 4, 2)
    target.config.compress_rates["compressed_sparse_attention"] = 8
    try:
        with pytest.raises(ValueError, match=r"compressed_sparse_attention'\]: expected 4, got 8"):
            Runner(target, nextn, layout_of(16))
    finally:
        target.config.compress_rates["compressed_sparse_attention"] = 4


def test_a_model_of_sliding_window_layers_needs_no_other_pool():
    target, nextn = build(3, num_hidden_layers=2, layer_types=["sliding_attention"] * 2, mlp_layer_types=["moe"] * 2)
    layout = KVLayout(16, 128, 2, 320, {"swa": 60})
    prompt = prompts_of([140], seed=1)[0]
    completions, stats = Runner(target, nextn, layout).generate([prompt], 12, 3, 30)
    with torch.no_grad():
        logits = target(torch.tensor([prompt + completions[0].tokens])).logits[0]
    assert completions[0].tokens == logits[139:-1].argmax(dim=-1).tolist()
    assert stats.final_pages == {"swa": 0}

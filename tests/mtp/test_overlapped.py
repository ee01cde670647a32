"""Overlapped scheduling gives the plain runner's tokens, and launches every step before it reads the one before."""

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mtp.conftest import NEW_TOKENS
from mtp.poison import poisoned_runner
from mtp.small_models import build, layout_of, prompts_of
from mtp.truth import forced_on_device

from dsv4_npu_ops import KVLayout
from dsv4_npu_ops.layout import POOLS
from dsv4_npu_ops.mtp import overlapped
from dsv4_npu_ops.mtp.scheduler import Request, lifetime_pages

LENGTHS = [4, 129, 5, 257, 130, 3]


def mixed(requests, generated, width):
    """Accepted lengths that change from step to step and differ between requests."""
    return 1 + (7 * requests + 5 * generated + generated * generated) % width


def all_of_them(requests, generated, width):
    return torch.full_like(generated, width)


@pytest.fixture(scope="module")
def served(small_model, truth):
    """Prompts, and transformers' continuations of them."""
    prompts = [prompts_of([length], seed=length)[0] for length in LENGTHS]
    return prompts, [truth(prompt)[0] for prompt in prompts]


def script_of(prompts, texts, choose=mixed):
    return forced_on_device([len(prompt) for prompt in prompts], texts, choose)


@given(data=st.data())
@settings(max_examples=8)
def test_tokens_equal_transformers_in_random_batches(small_model, served, data):
    prompts, texts = served
    count = len(prompts)

    def one_each(low, high):
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    widths, limits, chunks = one_each(1, 8), one_each(1, NEW_TOKENS), one_each(20, 300)
    rows = data.draw(st.integers(1, 6))
    layout = layout_of(data.draw(st.sampled_from([16, 64, 128])), max_requests=rows)
    eos = data.draw(st.lists(st.sampled_from(texts[0] + texts[3]), max_size=1))
    runner = poisoned_runner(*small_model, layout, bucket=data.draw(st.sampled_from([1, 4])))
    completions, stats = runner.generate(
        prompts, limits, widths, chunks, arrivals=one_each(0, 9), overlap=True, eos_token_ids=eos,
        device_script=script_of(prompts, texts, data.draw(st.sampled_from([mixed, all_of_them]))),
    )  # fmt: skip
    for completion, text, limit in zip(completions, texts, limits, strict=True):
        ends = [place + 1 for place, token in enumerate(text[:limit]) if token in eos]
        assert completion.tokens == text[: min([limit, *ends])]
        assert completion.finish_reason == ("eos" if ends else "max_new_tokens")
    assert stats.emitted_tokens == sum(len(completion.tokens) for completion in completions)
    assert not any(stats.final_pages.values())


@pytest.mark.parametrize("n", [1, 2, 5])
def test_accepted_lengths_and_guesses_equal_the_plain_runner(small_model, served, n):
    prompts, texts = served
    ends = [len(prompt) + NEW_TOKENS - 1 for prompt in prompts]
    script, results = script_of(prompts, texts), []
    for overlap in (False, True):
        guesses = set()

        def noting(requests, committed, proposed, guesses=guesses):
            rows = zip(requests, committed.tolist(), proposed.tolist(), strict=True)
            # Only the overlapped runner still guesses for requests that have ended.
            guesses.update((row, length, *own) for row, length, own in rows if length < ends[row])
            return script(requests, committed, proposed)

        runner = poisoned_runner(*small_model, layout_of(16, max_requests=6))
        completions, stats = runner.generate(prompts, NEW_TOKENS, n, 64, overlap=overlap, device_script=noting)
        results.append((completions, guesses))
        assert stats.peak_in_flight == 1 + overlap
    assert results[0] == results[1]


def test_an_mtp_layer_and_no_script(small_model, served):
    prompts, texts = served
    runner = poisoned_runner(*small_model, layout_of(64, max_requests=6), bucket=4)
    completions, stats = runner.generate(prompts, NEW_TOKENS, 4, 100, overlap=True)
    assert [completion.tokens for completion in completions] == texts
    assert stats.draft_extend_passes == stats.prefill_steps + stats.verify_steps
    assert stats.ops.calls["advance_step"] == stats.ops.calls["reserve_extend"] == stats.verify_steps


@pytest.mark.parametrize("spare", [1, 2, 5, 9, 13, NEW_TOKENS])
def test_widths_are_clipped_at_the_longest_context(small_model, served, spare):
    prompts, texts = served
    longest = len(prompts[3]) + spare
    runner = poisoned_runner(*small_model, layout_of(16, max_requests=6, max_context_len=longest))
    completions, _ = runner.generate(
        prompts, NEW_TOKENS, 8, 100, overlap=True, device_script=script_of(prompts, texts, all_of_them)
    )
    for prompt, completion, text in zip(prompts, completions, texts, strict=True):
        assert completion.tokens == text[: longest - len(prompt)]
    assert completions[3].finish_reason == ("max_context_len" if spare < NEW_TOKENS else "max_new_tokens")


def exact_layout(prompts, n, chunk, page_size):
    """Pools that hold the most demanding request and not a page more."""
    requests = [Request(i, prompt, NEW_TOKENS, n, chunk, 0, 2) for i, prompt in enumerate(prompts)]
    needs = [lifetime_pages(request, layout_of(page_size)) for request in requests]
    return KVLayout(page_size, 128, 4, 640, {pool: max(need[pool] for need in needs) for pool in POOLS})


@pytest.mark.parametrize(
    ("page_size", "n", "chunk", "admission"),
    [
        (16, 8, 37, "reserved"),
        (128, 4, 100, "optimistic"),
        pytest.param(16, 8, 37, "optimistic", marks=pytest.mark.thorough),
        pytest.param(128, 4, 100, "reserved", marks=pytest.mark.thorough),
    ],
)
def test_exhausted_pools_make_requests_wait_and_lose_nothing(small_model, served, page_size, n, chunk, admission):
    prompts, texts = served
    layout = exact_layout(prompts, n, chunk, page_size)
    runner = poisoned_runner(*small_model, layout)
    completions, stats = runner.generate(
        prompts, NEW_TOKENS, n, chunk, overlap=True, admission=admission, device_script=script_of(prompts, texts)
    )
    assert [completion.tokens for completion in completions] == texts
    for pool in POOLS:
        assert 0 < stats.peak_pages[pool] <= layout.num_pages[pool]
        assert runner.allocator.available_pages(pool) == layout.num_pages[pool]


def test_an_end_is_noticed_one_step_late_and_the_extra_step_discarded(small_model, served):
    prompts, texts = served
    runner = poisoned_runner(*small_model, layout_of(16))
    place = 7
    completions, stats = runner.generate(prompts[:1], NEW_TOKENS, 1, overlap=True, eos_token_ids=[texts[0][place]])
    ends = texts[0].index(texts[0][place]) + 1
    assert completions[0].tokens == texts[0][:ends]
    assert stats.discarded_rows == 1
    # The first token is prefill's.
    assert stats.verify_steps == ends - 1 + 1


READS = ("tolist", "item", "cpu", "numpy", "nonzero", "__bool__", "__int__", "__index__", "__float__", "__iter__")


def test_no_step_is_read_before_the_next_is_launched(small_model, served, monkeypatch):
    prompts, texts = served
    events, offenders = [], []

    class Watched(overlapped.Readback):
        def __init__(self, values):
            super().__init__(values)
            self.number = sum(kind == "launch" for kind, _ in events)
            events.append(("launch", self.number))

        def read(self):
            events.append(("read", self.number))
            return super().read()

    def watched(name):
        original = getattr(torch.Tensor, name)

        def call(tensor, *args, **kwargs):
            frame = sys._getframe(1)
            if frame.f_globals["__name__"].startswith("dsv4_npu_ops.mtp") and frame.f_code.co_name != "read":
                offenders.append((name, frame.f_code.co_name))
            return original(tensor, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, call)

    monkeypatch.setattr(overlapped, "Readback", Watched)
    runner = poisoned_runner(*small_model, layout_of(16, max_requests=6))
    script = script_of(prompts, texts)
    for name in READS:
        watched(name)
    completions, _ = runner.generate(prompts, NEW_TOKENS, 4, 100, arrivals=[0, 0, 2, 4, 6, 8], overlap=True,
                                     device_script=script)  # fmt: skip
    monkeypatch.undo()
    assert [completion.tokens for completion in completions] == texts
    assert not offenders
    launches = sum(kind == "launch" for kind, _ in events)
    assert launches > 12
    # launch 0, launch 1, read 0, launch 2, read 1, .. until every request has surely ended.
    expected = [("launch", 0)]
    for number in range(1, launches):
        expected += [("launch", number), ("read", number - 1)]
    assert [event for event in events if event != ("read", launches - 1)] == expected


def test_scripts_that_need_the_host_are_refused(small_model):
    runner = poisoned_runner(*small_model, layout_of(16))
    with pytest.raises(ValueError, match="script: expected None with overlap or device_script, got a script"):
        runner.generate([[1, 2]], 4, 2, overlap=True, script=lambda request, generated, guesses: guesses)
    assert not runner.tables.table("full").any()


def test_a_model_of_sliding_window_layers_needs_no_other_pool():
    target, nextn = build(3, num_hidden_layers=2, layer_types=["sliding_attention"] * 2, mlp_layer_types=["moe"] * 2)
    layout = KVLayout(16, 128, 2, 320, {"swa": 60})
    prompt = prompts_of([140], seed=1)[0]
    plain, _ = poisoned_runner(target, nextn, layout).generate([prompt], 12, 3, 30)
    completions, _ = poisoned_runner(target, nextn, layout).generate([prompt], 12, 3, 30, overlap=True)
    assert completions == plain

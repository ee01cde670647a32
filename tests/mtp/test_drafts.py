"""The paged MTP layer's guesses equal those of an uncached recomputation from the tokens alone."""

import pytest
from mtp.conftest import NEW_TOKENS
from mtp.poison import poisoned_runner
from mtp.small_models import VOCAB_SIZE, layout_of, prompts_of
from mtp.truth import forced
from reference import mtp as reference


@pytest.mark.parametrize(
    ("chunk", "n", "page_size", "bucket"),
    [(37, 8, 16, 1), (None, 3, 128, 4), (100, 5, 64, 1), pytest.param(7, 2, 16, 3, marks=pytest.mark.thorough)],
)
def test_guesses_equal_the_uncached_reference(small_model, truth, chunk, n, page_size, bucket):
    target, nextn = small_model
    lengths = [4, 130, 257]
    prompts = [prompts_of([length], seed=length)[0] for length in lengths]
    expected = [truth(prompt)[0] for prompt in prompts]
    streams = [
        reference.target_streams(target, prompt + tokens) for prompt, tokens in zip(prompts, expected, strict=True)
    ]
    checked = []
    force = forced(expected, lambda request, generated, width: 1 + len(checked) % width, VOCAB_SIZE)

    def script(request, generated, guesses):
        known = prompts[request] + generated
        assert guesses == reference.draft_tokens(nextn, known, streams[request], len(guesses))
        checked.append(len(guesses))
        return force(request, generated, guesses)

    runner = poisoned_runner(target, nextn, layout_of(page_size), bucket=bucket)
    completions, stats = runner.generate(prompts, NEW_TOKENS, n, chunk, script=script)
    assert [completion.tokens for completion in completions] == expected
    assert sum(checked) >= 3 * (n - 1) * (NEW_TOKENS // n)
    assert {1, n} <= set(stats.accepted) and len(stats.accepted) >= min(n, 6)


def test_the_layers_own_guesses_are_accepted_as_the_reference_says(small_model, truth):
    target, nextn = small_model
    prompts = prompts_of([5, 129], seed=5)
    runner = poisoned_runner(target, nextn, layout_of(64))
    completions, _ = runner.generate(prompts, NEW_TOKENS, 4, 50)
    for prompt, completion in zip(prompts, completions, strict=True):
        tokens = prompt + truth(prompt)[0]
        assert prompt + completion.tokens == tokens
        expected = reference.accepted_lengths(target, nextn, tokens, len(prompt), 4)
        # The reference stops drafting at the end of the text; the runner may accept beyond it.
        assert completion.accepted[:-1] == expected[: len(completion.accepted) - 1]

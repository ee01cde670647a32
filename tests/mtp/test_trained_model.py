"""The committed checkpoint on real text: its MTP layer's own guesses, accepted in earnest, over the pools."""

from pathlib import Path

import pytest
from mtp.poison import poisoned_runner
from mtp.small_models import layout_of
from mtp.truth import Truth
from reference import mtp as reference

from dsv4_npu_ops.mtp.checkpoint import load_checkpoint

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "tiny_checkpoint"
PROMPT_LENS = (60, 131, 300)
NEW_TOKENS = 36


@pytest.fixture(scope="module")
def checkpoint():
    return load_checkpoint(FOLDER)


@pytest.fixture(scope="module")
def prompts():
    """Pieces of a Python source that the training did not see, one token a byte."""
    source = (FOLDER / "model.py").read_bytes()
    return [list(source[2000 * i + 137 :][:length]) for i, length in enumerate(PROMPT_LENS)]


@pytest.fixture(scope="module")
def expected(checkpoint, prompts):
    """transformers' greedy continuations."""
    truth = Truth(checkpoint[0], NEW_TOKENS)
    return [truth(prompt)[0] for prompt in prompts]


CASES = [
    pytest.param(1, 64, 128, 1, marks=pytest.mark.thorough),
    pytest.param(3, None, 16, 4, marks=pytest.mark.thorough),
    (6, 50, 64, 1),
]


@pytest.mark.parametrize(("n", "chunk", "page_size", "bucket"), CASES)
def test_real_text_continues_like_transformers(checkpoint, prompts, expected, n, chunk, page_size, bucket):
    target, nextn = checkpoint
    runner = poisoned_runner(target, nextn, layout_of(page_size), bucket=bucket)
    completions, stats = runner.generate(
        prompts, NEW_TOKENS, n, chunk, arrivals=[0, 2, 5], eos_token_ids=[target.config.eos_token_id]
    )
    for prompt, tokens, completion in zip(prompts, expected, completions, strict=True):
        assert completion.tokens == tokens
        lengths = reference.accepted_lengths(target, nextn, prompt + tokens, len(prompt), n)
        # The reference knows no token beyond the text, so its last length may be shorter.
        assert completion.accepted[:-1] == lengths[: len(completion.accepted) - 1]
    assert n == 1 or stats.tokens_per_step() > 1.3
    assert not any(stats.final_pages.values())

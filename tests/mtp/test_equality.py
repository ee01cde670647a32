"""Ragged continuous batches generate transformers' greedy tokens, whatever the chunking, paging and draft length."""

import pytest
from mtp.conftest import NEW_TOKENS
from mtp.poison import poisoned_runner
from mtp.small_models import VOCAB_SIZE as VOCAB
from mtp.small_models import layout_of, prompts_of
from mtp.truth import LogitsObserver, forced

CHUNK_SIZES = (1, 7, 37, 100, 128, None)
PAGE_SIZES = (16, 64, 128)
DRAFT_TOKENS = tuple(range(1, 9))
LENGTHS = {"short": (3, 4, 5), "one": (127, 128, 129, 130, 131, 132), "two": (255, 256, 257, 258, 259, 260),
           "long": (500, 511, 512, 513)}  # fmt: skip

# Small chunks are many steps: how many of the four lengths to run, by draft length.
PROMPTS_OF_SMALL_CHUNKS = {1: (2, 2, 3, 2, 2, 2, 2, 2), 7: (4, 2, 3, 2, 4, 2, 3, 2)}


def cases():
    """Every chunk size with every draft length; page sizes, lengths and padded buckets pairwise with both."""
    for i, chunk in enumerate(CHUNK_SIZES):
        for j, n in enumerate(DRAFT_TOKENS):
            lengths = [family[(i + j) % len(family)] for family in LENGTHS.values()]
            if chunk in PROMPTS_OF_SMALL_CHUNKS:
                lengths = lengths[: PROMPTS_OF_SMALL_CHUNKS[chunk][j]]
            bucket = 4 if (i + 2 * j) % 3 == 0 else 1
            page_size = PAGE_SIZES[(i + j) % 3]
            name = f"chunk{chunk or 'whole'}-n{n}-page{page_size}-bucket{bucket}"
            # A quarter of them still has every chunk size twice, and every draft length.
            marks = [pytest.mark.thorough] if (i - j) % 4 else []
            yield pytest.param(chunk, n, page_size, bucket, lengths, id=name, marks=marks)


def check(model, truth, chunk, n, page_size, bucket, lengths, tolerance):
    target, nextn = model
    prompts = [prompts_of([length], seed=length)[0] for length in lengths]
    expected = [truth(prompt) for prompt in prompts]
    observer = LogitsObserver(expected)
    script = forced([tokens for tokens, _ in expected], lambda r, g, w: 1 + (7 * r + 5 * g + g * g) % w, VOCAB)
    runner = poisoned_runner(target, nextn, layout_of(page_size), bucket=bucket)
    completions, stats = runner.generate(
        prompts, NEW_TOKENS, n, chunk, arrivals=[2 * i for i in range(len(prompts))], script=script, observer=observer
    )
    assert [completion.tokens for completion in completions] == [tokens for tokens, _ in expected]
    assert observer.compared >= NEW_TOKENS * len(prompts)
    assert observer.worst < tolerance
    assert set(stats.accepted) <= set(range(1, n + 1))
    assert n == 1 or max(stats.accepted) > 1
    assert not any(stats.final_pages.values())


@pytest.mark.parametrize(("chunk", "n", "page_size", "bucket", "lengths"), list(cases()))
def test_tokens_and_logits_equal_transformers(small_model, truth, chunk, n, page_size, bucket, lengths):
    check(small_model, truth, chunk, n, page_size, bucket, lengths, tolerance=1e-4)


@pytest.mark.parametrize(
    ("chunk", "n", "page_size"),
    [
        pytest.param(7, 4, 16, marks=pytest.mark.thorough),
        pytest.param(37, 1, 128, marks=pytest.mark.thorough),
        (100, 8, 64),
        pytest.param(None, 3, 128, marks=pytest.mark.thorough),
    ],
)
def test_float64_tokens_and_logits_equal_transformers(double_model, double_truth, chunk, n, page_size):
    check(double_model, double_truth, chunk, n, page_size, 1, [4, 128, 258, 513], tolerance=2e-5)

"""Every accepted length at every alignment to 4 and to 128 continues like one-token-at-a-time decoding."""

import pytest
from mtp.poison import poisoned_runner
from mtp.small_models import CSA, HCA, VOCAB_SIZE, build, layout_of, prompts_of, transformers_greedy
from mtp.truth import forced

PROMPT_LEN, TEXT_LEN, NUM_TEXTS = 24, 312, 2
DRAFT_TOKENS = range(1, 9)
RESIDUES = 128


@pytest.fixture(scope="module")
def model():
    """A target with one compressing layer of either ratio; whatever they get wrong reaches the logits."""
    return build(seed=7, num_hidden_layers=2, layer_types=[CSA, HCA], mlp_layer_types=["hash_moe", "moe"])[0]


@pytest.fixture(scope="module")
def texts(model):
    """Greedy texts by transformers: whatever prefix is the prompt, the rest is its continuation."""
    prompts = prompts_of([PROMPT_LEN] * NUM_TEXTS, seed=4)
    return [prompt + transformers_greedy(model, prompt, TEXT_LEN - PROMPT_LEN)[0] for prompt in prompts]


class Coverage:
    """Chooses accepted lengths so that every (n, accepted, L mod 128) happens, and counts what was then continued."""

    def __init__(self) -> None:
        self.missing = {(n, a, rest) for n in DRAFT_TOKENS for a in range(1, n + 1) for rest in range(RESIDUES)}
        self._begun: set[tuple[int, int, int]] = set()
        self._pending: dict[int, tuple[int, int, int]] = {}

    def chooser(self, prompt_lens: list[int], widths: list[int]):
        """For ``forced``: an accepted length not begun yet at this alignment, if there is one."""
        self._begun, self._pending = set(), {}

        def choose(request: int, generated: int, width: int) -> int:
            self.missing.discard(self._pending.pop(request, (0, 0, 0)))
            n, rest = widths[request], (prompt_lens[request] + generated - 1) % RESIDUES
            left = [a for a in range(1, n + 1) if (n, a, rest) in self.missing - self._begun]
            event = (n, left[0] if left else 1 + (generated + request) % n, rest)
            self._begun.add(event)
            self._pending[request] = event
            return min(event[1], width)

        return choose

    def requests(self) -> list[tuple[int, int, int]]:
        """Prompt length, n and new tokens of requests that meet missing events; the first wave sweeps everything."""
        if not self._begun:
            return [(40 + 3 * i, n, RESIDUES + 2 * n) for n in DRAFT_TOKENS for i in range(n * (n + 1) // 2 + 1)]
        return [(rest if rest >= PROMPT_LEN else rest + RESIDUES, n, a + n + 1) for n, a, rest in self.missing]


def test_every_accepted_length_at_every_alignment(model, texts):
    coverage, waves = Coverage(), 0
    while coverage.missing:
        waves += 1
        assert waves < 6, f"{len(coverage.missing)} of n, accepted length and L mod 128 never happened"
        lens, widths, new_tokens = zip(*coverage.requests(), strict=True)
        sources = [texts[i % NUM_TEXTS] for i in range(len(lens))]
        expected = [text[length:] for text, length in zip(sources, lens, strict=True)]
        script = forced(expected, coverage.chooser(list(lens), list(widths)), VOCAB_SIZE)
        runner = poisoned_runner(model, None, layout_of(16, max_requests=64, max_context_len=400))
        completions, stats = runner.generate(
            [text[:length] for text, length in zip(sources, lens, strict=True)],
            new_tokens,
            widths,
            chunk_size=100,
            script=script,
        )
        for completion, following, count in zip(completions, expected, new_tokens, strict=True):
            assert completion.tokens == following[:count]
        assert not any(stats.final_pages.values())


def test_two_of_six_accepted_keep_the_state_that_the_next_group_reads(model, texts):
    accepted = []

    def choose(request, generated, width):
        accepted.append(2 if not accepted else width)
        return accepted[-1]

    runner = poisoned_runner(model, None, layout_of(16))
    # Committed length 10, n = 6: two are accepted, and group 12..15 then reads the state of 8..15.
    prompt, following = texts[0][:10], transformers_greedy(model, texts[0][:10], 20)[0]
    completions, _ = runner.generate([prompt], 20, 6, script=forced([following], choose, VOCAB_SIZE))
    assert completions[0].tokens == following
    assert completions[0].accepted[0] == 2

"""What transformers generates, kept per prompt, and scripts and observers built from it."""

from collections.abc import Callable

import torch
from mtp.small_models import VOCAB_SIZE, transformers_greedy

from dsv4_npu_ops.mtp.scheduler import Running
from dsv4_npu_ops.mtp.step import Step


class Truth:
    """Greedy continuations of one target by transformers, each computed once.

    Args:
        target: the model.
        new_tokens: tokens that every prompt is continued by.
    """

    def __init__(self, target, new_tokens: int) -> None:
        self.target, self.new_tokens = target, new_tokens
        self._known: dict[tuple[int, ...], tuple[list[int], torch.Tensor]] = {}

    def __call__(self, prompt: list[int]) -> tuple[list[int], torch.Tensor]:
        """Tokens, and the logits ``[new_tokens, vocab]`` that they are the argmax of."""
        key = tuple(prompt)
        if key not in self._known:
            self._known[key] = transformers_greedy(self.target, prompt, self.new_tokens)
        return self._known[key]


def forced(truths: list[list[int]], choose: Callable[[int, int, int], int], vocab_size: int):
    """A script that makes every verify accept ``choose(request, generated tokens, width)`` of its tokens.

    Right guesses come first, then one wrong guess, then right ones again, which must not count.
    """

    def script(request: int, generated: list[int], guesses: list[int]) -> list[int]:
        start, width = len(generated), len(guesses) + 1
        wanted = choose(request, start, width)
        following = [*truths[request][start:], *([0] * width)][: width - 1]
        if wanted < width:
            following[wanted - 1] = (following[wanted - 1] + 1) % vocab_size
        return following

    return script


def forced_on_device(
    prompt_lens: list[int], truths: list[list[int]], choose: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
):
    """``forced`` for a runner whose host does not know what was generated: the same guesses, by tensors alone.

    Args:
        prompt_lens: tokens of every request's prompt.
        truths: its continuation; behind its end guesses are its last token.
        choose: accepted length by request, generated tokens and width.
    """
    lengths = torch.tensor(prompt_lens)
    longest = max(map(len, truths))
    texts = torch.tensor([[*text, *[text[-1]] * (longest - len(text))] for text in truths])

    def script(requests: list[int], committed: torch.Tensor, guesses: torch.Tensor) -> torch.Tensor:
        rows = torch.tensor(requests)
        # The newest token is generated and not committed.
        generated, width = committed - lengths[rows] + 1, guesses.shape[1] + 1
        offsets = torch.arange(width - 1)
        following = texts[rows[:, None], (generated[:, None] + offsets).clamp(max=longest - 1)]
        wrong = offsets == choose(rows, generated, width)[:, None] - 1
        return torch.where(wrong, (following + 1) % VOCAB_SIZE, following)

    return script


class LogitsObserver:
    """Compares the logits of every accepted position with transformers', and remembers the largest difference."""

    def __init__(self, truths: list[tuple[list[int], torch.Tensor]]) -> None:
        self._truths = truths
        self.worst, self.compared = 0.0, 0

    def _compare(self, logits: torch.Tensor, expected: torch.Tensor) -> None:
        self.worst = max(self.worst, (logits - expected).abs().max().item())
        self.compared += 1

    def __call__(self, rows: list[Running], step: Step, streams: torch.Tensor, logits: torch.Tensor) -> None:
        finals = step.final_len.tolist()
        for i, running in enumerate(rows):
            tokens, expected = self._truths[running.request.index]
            if running.prefilling:
                if finals[i] == len(running.request.prompt):
                    self._compare(logits[i], expected[0])
                continue
            first, last = step.token_offsets[i].item(), step.token_offsets[i + 1].item()
            for token, place in enumerate(range(first, last), start=len(running.generated)):
                if token >= len(tokens) or step.token_ids[place].item() != tokens[token - 1]:
                    break
                self._compare(logits[place], expected[token])

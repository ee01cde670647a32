"""Speculative decoding options as engines name them, made complete and consistent (docs/spec.md, weights)."""

from dataclasses import dataclass

_ALGORITHMS = ("NEXTN", "EAGLE")
"""Both mean drafting with the model's own MTP layer; NEXTN is the older word for it."""


@dataclass(frozen=True)
class SpeculativeOptions:
    """A complete set of options.

    Attributes:
        algorithm: ``EAGLE``, or None without speculation.
        num_steps: forwards of the MTP layer a verify; guesses along one path.
        topk: guesses that each of them branches into.
        num_draft_tokens: tokens a verify brings for a request, the last sampled one included (n).
    """

    algorithm: str | None
    num_steps: int
    topk: int
    num_draft_tokens: int


def normalise_speculative(
    algorithm: str | None,
    num_steps: int | None = None,
    topk: int | None = None,
    num_draft_tokens: int | None = None,
) -> SpeculativeOptions:
    """Completes what was left out: ``topk`` is 1, and a chain of s guesses (topk 1) makes a verify of s + 1 tokens.

    Args:
        algorithm: ``NEXTN`` or ``EAGLE`` in any case; None decodes without guesses.
        num_steps, topk, num_draft_tokens: numbers, or None where the caller did not say.

    Raises:
        ValueError: another algorithm; a number below its minimum, missing, or contradicting the others.

    Source: docs/spec.md, weights.
    """
    given = {"num_steps": num_steps, "topk": topk, "num_draft_tokens": num_draft_tokens}
    if algorithm is None:
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"normalise_speculative: {name} is {value}, expected None without an algorithm")
        return SpeculativeOptions(None, 0, 1, 1)
    if algorithm.upper() not in _ALGORITHMS:
        raise ValueError(f"normalise_speculative: algorithm is {algorithm!r}, expected one of {', '.join(_ALGORITHMS)}")
    for name, value in given.items():
        minimum = 2 if name == "num_draft_tokens" else 1
        if value is not None and value < minimum:
            raise ValueError(f"normalise_speculative: {name} is {value}, expected at least {minimum}")
    topk = 1 if topk is None else topk
    if topk > 1:
        return _tree(topk, num_steps, num_draft_tokens)
    if num_steps is None and num_draft_tokens is None:
        raise ValueError("normalise_speculative: num_steps and num_draft_tokens are None, expected one of them")
    steps = num_steps if num_steps is not None else (num_draft_tokens or 0) - 1
    if num_draft_tokens not in (None, steps + 1):
        raise ValueError(
            f"normalise_speculative: num_draft_tokens is {num_draft_tokens}, "
            f"expected {steps + 1} for {steps} steps with topk 1"
        )
    return SpeculativeOptions("EAGLE", steps, 1, steps + 1)


def _tree(topk: int, num_steps: int | None, num_draft_tokens: int | None) -> SpeculativeOptions:
    """With branches, how many of the guesses are verified is a choice that only the caller can make."""
    if num_steps is None or num_draft_tokens is None:
        missing = "num_steps" if num_steps is None else "num_draft_tokens"
        raise ValueError(f"normalise_speculative: {missing} is None, expected a number with topk {topk}")
    most = 1 + topk + (num_steps - 1) * topk * topk
    if num_draft_tokens > most:
        raise ValueError(
            f"normalise_speculative: num_draft_tokens is {num_draft_tokens}, "
            f"expected at most the {most} tokens of {num_steps} steps with topk {topk}"
        )
    return SpeculativeOptions("EAGLE", num_steps, topk, num_draft_tokens)

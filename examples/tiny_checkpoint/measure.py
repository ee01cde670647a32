"""Measures a checkpoint on held-out text: bits per byte, and how many of the MTP layer's guesses the target accepts.

python examples/tiny_checkpoint/measure.py examples/tiny_checkpoint
"""

import argparse
import math
from pathlib import Path

import torch
from corpus import decode, token_stream
from torch.nn import functional as F
from transformers import DeepseekV4ForCausalLM
from unroll import unrolled_logits

from dsv4_npu_ops.mtp.checkpoint import load_checkpoint
from dsv4_npu_ops.mtp.nextn import NextnLayer, target_streams

WINDOWS, LENGTH = 8, 640
PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 6, 320, 96
GUESSES = 4


def windows(stream: torch.Tensor, count: int, length: int) -> torch.Tensor:
    """int64 [count, length], evenly spaced over the held-out text."""
    starts = torch.linspace(0, len(stream) - length, count).long().tolist()
    return torch.stack([stream[start : start + length] for start in starts])


def bits_per_byte(target: DeepseekV4ForCausalLM, nextn: NextnLayer, tokens: torch.Tensor) -> list[float]:
    """Cross entropy in bits: the target's, then each MTP pass's when it is fed with true tokens."""
    streams, output = target_streams(target, tokens[:, :-2], use_cache=False)
    logits = [target.lm_head(output.last_hidden_state), *unrolled_logits(nextn, tokens[:, :-1], streams, GUESSES)]
    result = []
    for ahead, scores in enumerate(logits):
        skipped = max(0, ahead - 1)
        truth = tokens[:, 1:-1] if ahead == 0 else tokens[:, 2 + skipped :]
        result.append(F.cross_entropy(scores[:, skipped:].flatten(0, 1), truth.flatten()).item() / math.log(2))
    return result


def matching_guesses(target: DeepseekV4ForCausalLM, nextn: NextnLayer, tokens: torch.Tensor, first: int) -> list[int]:
    """How many guesses in a row are right when drafting from each committed length from `first` on.

    tokens is int64 [1, S], a prompt and the target's greedy continuation; a position's guesses follow
    its own earlier guesses, as in drafting.
    """
    streams, _ = target_streams(target, tokens[:, :-1], use_cache=False)
    guesses = [scores[0].argmax(-1) for scores in unrolled_logits(nextn, tokens, streams, GUESSES, own_guesses=True)]
    counts = []
    for committed in range(first, tokens.shape[1] - 1 - GUESSES):
        right = 0
        while right < GUESSES and guesses[right][committed - 1 + right] == tokens[0, committed + 1 + right]:
            right += 1
        counts.append(right)
    return counts


def tokens_per_step(counts: list[int], guesses: int) -> float:
    """Tokens committed a verify step on average when each step drafts `guesses` tokens."""
    position, steps = 0, 0
    while position < len(counts):
        position += 1 + min(guesses, counts[position])
        steps += 1
    return position / steps


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--show", type=int, default=2, help="how many continuations to print")
    args = parser.parse_args()
    torch.set_num_threads(1)
    target, nextn = load_checkpoint(args.checkpoint)
    stream = token_stream(held_out=True)
    rows = [bits_per_byte(target, nextn, row[None]) for row in windows(stream, WINDOWS, LENGTH)]
    means = [sum(column) / WINDOWS for column in zip(*rows, strict=True)]
    print(f"bits per byte: target {means[0]:.3f}, MTP passes {' '.join(f'{bits:.3f}' for bits in means[1:])}")
    per_prompt = []
    for number, prompt in enumerate(windows(stream, PROMPTS, PROMPT_TOKENS)):
        tokens = target.generate(prompt[None], max_new_tokens=NEW_TOKENS, do_sample=False)
        counts = matching_guesses(target, nextn, tokens, PROMPT_TOKENS)
        if counts:
            per_prompt.append(counts)
        if number < args.show:
            print(
                f"--- prompt's last 120 bytes | continuation\n{decode(prompt[-120:].tolist())}|"
                f"{decode(tokens[0, PROMPT_TOKENS:].tolist())}\n---"
            )
    counts = [count for part in per_prompt for count in part]
    for guesses in range(1, GUESSES + 1):
        reached = sum(count >= guesses for count in counts) / len(counts)
        speed = sum(tokens_per_step(part, guesses) for part in per_prompt) / len(per_prompt)
        print(f"{guesses} guesses: all accepted in {reached:.1%} of positions, {speed:.2f} tokens a verify step")


if __name__ == "__main__":
    main()

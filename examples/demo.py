"""Continues real source files with a small DeepSeek-V4 and its MTP layer, and checks the result on the spot.

    python examples/demo.py

The prompts are pieces of standard-library modules that the checkpoint was not trained on. All of them are served at
once over the six paged pools: prefill in chunks, draft, target verify, draft extend. Then the same prompts are decoded
without drafts over the same pools, and by transformers with its own cache, one at a time.
"""

import argparse
import sys
import sysconfig
import time
from pathlib import Path

import torch
from tiny_checkpoint.corpus import EOS, decode, encode, is_held_out
from transformers import DeepseekV4ForCausalLM
from transformers.generation.streamers import BaseStreamer
from transformers.utils import logging as transformers_logging

from dsv4_npu_ops import KVLayout, peak_pages
from dsv4_npu_ops.mtp.checkpoint import load_checkpoint
from dsv4_npu_ops.mtp.runner import Completion, Runner
from dsv4_npu_ops.mtp.stats import RunStats

CHECKPOINT = Path(__file__).parent / "tiny_checkpoint"
PROMPT_BYTES = {"dbm/dumb.py": 250, "email/errors.py": 333, "multiprocessing/pool.py": 510, "subprocess.py": 640}
"""Modules of the standard library, and how many of their bytes are the prompt."""
PAGE_SIZE, MAX_CONTEXT_LEN, CHUNK_SIZE = 16, 1024, 128


def held_out_prompts() -> list[list[int]]:
    """For every module of ``PROMPT_BYTES`` that many bytes, from the line in its middle on."""
    prompts = []
    for name, length in PROMPT_BYTES.items():
        path = Path(sysconfig.get_paths()["stdlib"], name)
        if not is_held_out(path):
            raise RuntimeError(f"{name}: expected a module that the checkpoint was not trained on")
        source = path.read_bytes()
        begin = source.rfind(b"\n", 0, len(source) // 2) + 1
        prompts.append(encode(source[begin : begin + length]))
    return prompts


def layout(draft_tokens: int) -> KVLayout:
    """Pools for all prompts at once; window and state pools are far smaller than the context."""
    rows = len(PROMPT_BYTES)
    num_pages = peak_pages(
        MAX_CONTEXT_LEN, rows, page_size=PAGE_SIZE, chunk_size=CHUNK_SIZE, num_draft_tokens=draft_tokens
    )
    return KVLayout(PAGE_SIZE, 128, rows, MAX_CONTEXT_LEN, num_pages)


class Progress:
    """Counts tokens: one line rewritten in place on a terminal, a line every few seconds elsewhere."""

    _QUIET_SECONDS = 5.0

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, total
        self._started = self._shown = time.perf_counter()

    def __call__(self, tokens: int) -> None:
        now = time.perf_counter()
        line = f"{self._label}: {tokens} of {self._total} tokens, {now - self._started:.1f} s"
        if sys.stdout.isatty():
            print(f"\r{line}", end="", flush=True)
        elif now - self._shown > self._QUIET_SECONDS:
            print(line, flush=True)
            self._shown = now

    def done(self, tokens: int) -> None:
        """Ends the line with the speed."""
        elapsed = time.perf_counter() - self._started
        start = "\r" if sys.stdout.isatty() else ""
        print(f"{start}{self._label}: {tokens} tokens in {elapsed:.1f} s, {tokens / elapsed:.0f} tokens/s", flush=True)


class TokenCounter(BaseStreamer):
    """Feeds ``Progress`` from transformers' generation, which hands over the prompt first and then token by token."""

    def __init__(self, progress: Progress) -> None:
        self.tokens, self._progress = 0, progress

    def put(self, value: torch.Tensor) -> None:
        if value.dim() == 1:
            self.tokens += value.numel()
            self._progress(self.tokens)

    def end(self) -> None:
        """Nothing is buffered."""


def serve(
    runner: Runner, prompts: list[list[int]], new_tokens: int, draft_tokens: int, label: str
) -> tuple[list[Completion], RunStats]:
    """All prompts at once over the pools."""
    progress = Progress(label, new_tokens * len(prompts))
    completions, stats = runner.generate(
        prompts,
        new_tokens,
        draft_tokens,
        CHUNK_SIZE,
        eos_token_ids=[EOS],
        progress=lambda running: progress(running.emitted_tokens),
    )
    progress.done(stats.emitted_tokens)
    return completions, stats


def transformers_greedy(target: DeepseekV4ForCausalLM, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
    """transformers' own generation, one prompt at a time."""
    progress = Progress("transformers, its own cache", new_tokens * len(prompts))
    counter = TokenCounter(progress)
    results: list[list[int]] = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        output = target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            do_sample=False,
            eos_token_id=EOS,
            streamer=counter,
        )
        results.append(output[0, len(prompt) :].tolist())
    progress.done(counter.tokens)
    return results


def report(prompts: list[list[int]], completions: list[Completion], stats: RunStats) -> None:
    """Texts, acceptance, pool occupancy and op table."""
    for name, prompt, completion in zip(PROMPT_BYTES, prompts, completions, strict=True):
        print(f"\n--- {name}: {len(prompt)} prompt tokens, then {len(completion.tokens)} generated ones")
        print(f"{decode(prompt[-160:])}\033[1m{decode(completion.tokens)}\033[0m" if sys.stdout.isatty() else
              f"{decode(prompt[-160:])}[[{decode(completion.tokens)}]]")  # fmt: skip
    print(f"\naccepted length of a row's verify, over {sum(stats.accepted.values())} verifies")
    print(stats.histogram())
    print(
        f"tokens per step {stats.tokens_per_step():.2f}: {stats.prefill_steps} prefill steps, {stats.verify_steps} "
        f"verify steps, {stats.draft_extend_passes} draft-extend and {stats.draft_passes} draft passes"
    )
    occupancy = ", ".join(f"{pool} {peak}/{stats.total_pages[pool]}" for pool, peak in stats.peak_pages.items())
    print(f"most pages in use: {occupancy}; at the end {sum(stats.final_pages.values())}")
    print(f"\n{stats.ops.table()}\n")


def verdict(label: str, same: bool) -> bool:
    """Prints one check and returns it."""
    print(f"{'ok  ' if same else 'FAIL'} {label}")
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--new-tokens", type=int, default=128, help="tokens generated per prompt")
    parser.add_argument("--draft-tokens", type=int, default=4, help="tokens per target verify, guesses plus one")
    args = parser.parse_args()

    # Matrices this small only lose by more threads.
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    started = time.perf_counter()
    target, nextn = load_checkpoint(args.checkpoint)
    prompts = held_out_prompts()
    print(f"{len(prompts)} prompts of {', '.join(str(len(prompt)) for prompt in prompts)} tokens\n", flush=True)
    runner = Runner(target, nextn, layout(args.draft_tokens))
    label = f"MTP, {args.draft_tokens} tokens a verify"
    completions, stats = serve(runner, prompts, args.new_tokens, args.draft_tokens, label)
    report(prompts, completions, stats)

    plain, _ = serve(runner, prompts, args.new_tokens, 1, "plain decoding, same pools")
    reference = transformers_greedy(target, prompts, args.new_tokens)
    drafted = [completion.tokens for completion in completions]
    checks = [
        verdict("MTP equals plain decoding, token for token", drafted == [one.tokens for one in plain]),
        verdict("MTP equals transformers' greedy generation, token for token", drafted == reference),
        verdict("every page is free again", not any(stats.final_pages.values())),
    ]
    print(f"{time.perf_counter() - started:.0f} s")
    return 0 if all(checks) else 1


if __name__ == "__main__":
    sys.exit(main())

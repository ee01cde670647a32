"""What optimistic admission buys when the pools cannot hold all requests at once, and what its retractions cost.

    python bench/admission.py

Pieces of this repository's licence are continued by the demo's checkpoint, once with each way of admission. The counts
depend on nothing but the checkpoint.
"""

import sys
import time
from pathlib import Path
from typing import get_args

import torch
from transformers.utils import logging as transformers_logging

from dsv4_npu_ops import KVLayout
from dsv4_npu_ops.mtp.checkpoint import load_checkpoint
from dsv4_npu_ops.mtp.runner import Runner
from dsv4_npu_ops.mtp.scheduler import Admission

ROOT = Path(__file__).resolve().parent.parent
NUM_PROMPTS, NEW_TOKENS, DRAFT_TOKENS, CHUNK_SIZE = 12, 64, 4, 64
PAGE_SIZE, FULL_PAGES, MAX_CONTEXT_LEN = 16, 32, 256


def prompts() -> list[list[int]]:
    """Bytes of the licence, one a token as in the checkpoint's vocabulary: 24 to 35 of them."""
    text = (ROOT / "LICENSE").read_bytes()
    return [list(text[300 * i : 300 * i + 24 + i]) for i in range(NUM_PROMPTS)]


def layout() -> KVLayout:
    """Few pages for tokens, enough in the other pools."""
    enough = NUM_PROMPTS * MAX_CONTEXT_LEN // PAGE_SIZE
    others = dict.fromkeys(("swa", "c4", "c128", "c4_state", "c128_state"), enough)
    return KVLayout(PAGE_SIZE, 128, NUM_PROMPTS, MAX_CONTEXT_LEN, {"full": FULL_PAGES, **others})


def main() -> int:
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    target, nextn = load_checkpoint(ROOT / "examples" / "tiny_checkpoint")
    print(f"{NUM_PROMPTS} prompts, {NEW_TOKENS} new tokens each, {FULL_PAGES} token pages of {PAGE_SIZE}")
    print(f"{'admission':12} {'most at once':>12} {'verify steps':>12} {'retractions':>11} {'recomputed':>10} {'s':>6}")
    results = []
    for admission in get_args(Admission):
        started = time.perf_counter()
        completions, stats = Runner(target, nextn, layout()).generate(
            prompts(), NEW_TOKENS, DRAFT_TOKENS, CHUNK_SIZE, admission=admission
        )
        counts = [stats.peak_running, stats.verify_steps, stats.retractions, stats.recomputed_tokens]
        print("{:12} {:12} {:12} {:11} {:10}".format(admission, *counts), f"{time.perf_counter() - started:6.1f}")
        results.append(completions)
    same = results[0] == results[1]
    print("the same tokens and accepted lengths" if same else "FAIL: other tokens or accepted lengths")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())

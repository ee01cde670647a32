"""Drives the allocator through random calls beside the plain-Python model: python -m fuzz.fuzz_allocator --steps N.

Run it from tests/ (or with tests/ on the path). A failure prints the seed and the step that reproduce it.
"""

import argparse
import random
import sys
import time
from collections import Counter

import torch
from cache.allocator_actions import PAGE_SIZES, AllocatorActions, small_allocator

STEPS_PER_CACHE = 500


def run_one_cache(seed, steps):
    """One allocator, `steps` actions; returns how many calls ended how. Page sizes take turns."""
    source = random.Random(seed)
    checked = small_allocator(PAGE_SIZES[seed % len(PAGE_SIZES)], source.randint)
    actions = AllocatorActions(checked, source.randint)
    for step in range(steps):
        try:
            actions.any_action()
        except Exception:
            print(f"failed: --seed {seed} --steps {step + 1}, page size {checked.layout.page_size}", file=sys.stderr)
            raise
    checked.finish()
    return checked.outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="calls in all")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first cache; the next ones count on")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    began = reported = time.monotonic()
    done, outcomes = 0, Counter()
    seed = arguments.seed
    while done < arguments.steps:
        steps = min(STEPS_PER_CACHE, arguments.steps - done)
        outcomes += run_one_cache(seed, steps)
        done += steps
        seed += 1
        if time.monotonic() - reported > 30 or done >= arguments.steps:
            reported = time.monotonic()
            print(
                f"{done} of {arguments.steps} steps, {done / (reported - began):.0f} a second; calls: {dict(outcomes)}",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Serves random requests for a long time and checks every step: python -m soak.run --steps N.

Run it from tests/ (or with tests/ on the path). A failure prints the seed and the step that reproduce it.
"""

import argparse
import sys
import time
from collections import Counter

import torch

from soak.batch_engine import BatchEngine

STEPS_PER_CACHE = 2000


def soak_one_cache(seed, steps):
    """One cache for ``steps`` scheduler rounds; returns what happened how often."""
    engine = BatchEngine(seed)
    for step in range(steps):
        try:
            engine.step()
        except BaseException:
            print(f"failed: --seed {seed} --steps {step + 1}, {engine.layout}", file=sys.stderr)
            raise
    return engine.finish()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="scheduler rounds in all")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first cache; the next ones count on")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    began = reported = time.monotonic()
    done, seed, events = 0, arguments.seed, Counter()
    while done < arguments.steps:
        steps = min(STEPS_PER_CACHE, arguments.steps - done)
        events += soak_one_cache(seed, steps)
        done += steps
        seed += 1
        if time.monotonic() - reported > 30 or done >= arguments.steps:
            reported = time.monotonic()
            print(
                f"{done} of {arguments.steps} steps, {done / (reported - began):.0f} a second; {dict(events)}",
                flush=True,
            )


if __name__ == "__main__":
    main()

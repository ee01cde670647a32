"""The command line of runs that go through many small caches, one seed after another."""

import argparse
import time
from collections import Counter

import torch


def main(description, unit, steps_per_cache, run_one_cache):
    """Runs ``--steps`` steps and reports now and then; ``run_one_cache(seed, steps)`` counts what happened."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=1_000_000, help=f"{unit} in all")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first cache; the next ones count on")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    began = reported = time.monotonic()
    done, seed, events = 0, arguments.seed, Counter()
    while done < arguments.steps:
        steps = min(steps_per_cache, arguments.steps - done)
        events += run_one_cache(seed, steps)
        done += steps
        seed += 1
        if time.monotonic() - reported > 30 or done >= arguments.steps:
            reported = time.monotonic()
            rate = done / (reported - began)
            print(f"{done} of {arguments.steps} {unit}, {rate:.0f} a second; {dict(events)}", flush=True)

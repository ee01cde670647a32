"""Drives the allocator through random calls beside the plain-Python model: python -m fuzz.fuzz_allocator --steps N.

Run it from tests/ (or with tests/ on the path). A failure prints the seed and the step that reproduce it.
"""

import random

import long_run
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
        except Exception as error:
            error.add_note(f"failed: --seed {seed} --steps {step + 1}, page sizes {checked.layout.page_size}")
            raise
    checked.finish()
    return checked.outcomes


if __name__ == "__main__":
    long_run.main(__doc__, "calls", STEPS_PER_CACHE, run_one_cache)

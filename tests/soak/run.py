"""Serves random requests for a long time and checks every step: python -m soak.run --steps N.

Run it from tests/ (or with tests/ on the path). A failure prints the seed and the step that reproduce it.
"""

import long_run

from soak.batch_engine import BatchEngine

STEPS_PER_CACHE = 2000


def soak_one_cache(seed, steps):
    """One cache for ``steps`` scheduler rounds; returns what happened how often."""
    engine = BatchEngine(seed)
    for step in range(steps):
        try:
            engine.step()
        except BaseException as error:
            raise RuntimeError(f"failed: --seed {seed} --steps {step + 1}, {engine.layout}") from error
    return engine.finish()


if __name__ == "__main__":
    long_run.main(__doc__, "scheduler rounds", STEPS_PER_CACHE, soak_one_cache)

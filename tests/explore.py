"""Draws new examples for every property test until time is up: python tests/explore.py --minutes 10.

Each round has a seed, which is printed; --seed repeats one round. A failure does not end the exploration. What it finds
belongs into the test as @example or as a test of its own: `make test` draws its own examples, always the same.
"""

import argparse
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def property_tests() -> list[str]:
    """Files with property tests; importing all the others takes longer than a round.

    Those of engines need an engine's environment (tests/engines/engines.mk).
    """
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py") if "hypothesis" in path.read_text()]
    return sorted(str(path) for path in files if path.parts[1] != "engines")


def explore(seed: int, tests: list[str], workers: str) -> bool:
    """One round; shows what failed, and how to do it again."""
    backend = os.environ.get("DSV4_BACKEND", "cpu")
    print(f"seed {seed} on {backend}: ", end="", flush=True)
    options = [
        "-m",
        "hypothesis",
        "--hypothesis-profile=explore",
        f"--hypothesis-seed={seed}",
        "-p",
        "no:cacheprovider",
    ]
    command = [sys.executable, "-m", "pytest", "-n", workers, "--maxprocesses", "8", "-q", *options, *tests]
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    outcome = "passed" if done.returncode == 0 else "FAILED"
    print(f"{outcome} in {time.monotonic() - began:.0f} s", flush=True)
    if done.returncode != 0:
        again = "" if backend == "cpu" else f"DSV4_BACKEND={backend} "
        print(f"{done.stdout}\nto repeat it: {again}make explore SEED={seed}", flush=True)
    return done.returncode == 0


def summary(rounds: int, failed: list[int]) -> str:
    """As in "3 rounds, 2 failed: seeds 7, 9"."""
    counted = "1 round" if rounds == 1 else f"{rounds} rounds"
    if not failed:
        return f"{counted}, none failed"
    return f"{counted}, {len(failed)} failed: {'seed' if len(failed) == 1 else 'seeds'} {', '.join(map(str, failed))}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10, help="no round begins later")
    parser.add_argument("--seed", type=int, help="one round with this seed")
    parser.add_argument("--workers", default="auto", help="processes, as pytest-xdist counts them")
    parser.add_argument("tests", nargs="*", help="files or tests; all with properties by default")
    arguments = parser.parse_args()
    tests = arguments.tests or property_tests()
    end = time.monotonic() + 60 * arguments.minutes
    failed, rounds = [], 0
    while rounds == 0 or (arguments.seed is None and time.monotonic() < end):
        seed = secrets.randbelow(1 << 32) if arguments.seed is None else arguments.seed
        rounds += 1
        if not explore(seed, tests, arguments.workers):
            failed.append(seed)
    print(summary(rounds, failed))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

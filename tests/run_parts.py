"""Runs parts of the test suite one after another and says what each took: run_parts.py --setup build PART..

A part is a target of the Makefile; BUILT=1 tells it that the set-up is done. A part that fails does not keep the others
from running; a set-up that fails does.
"""

import argparse
import re
import resource
import shlex
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass

OUTCOMES = ("passed", "failed", "skipped")
# The last line of a pytest run, as in "2 failed, 40 passed, 1 skipped in 3.21s (0:00:03)".
SUMMARY = re.compile(r"(?:\d+ \w+, )*\d+ \w+ in [\d.]+s\b")


@dataclass
class Result:
    """What a part took; a part may run pytest several times."""

    name: str
    exit_status: int
    seconds: float
    processor_seconds: float
    counts: Counter

    def __str__(self) -> str:
        tests = ", ".join(f"{self.counts[outcome]} {outcome}" for outcome in OUTCOMES) if self.counts else "no tests"
        verdict = "" if self.exit_status == 0 else f"; FAILED, exit status {self.exit_status}"
        times = f"{self.seconds:.0f} s, {self.processor_seconds:.0f} s of processor time"
        return f"{self.name}: {tests}; {times}{verdict}"


def counts_of(line: str) -> Counter:
    """Tests by outcome if the line is pytest's last; errors of fixtures are failures."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", line).strip(" =\n")
    if not SUMMARY.match(plain):
        return Counter()
    found = Counter({kind: int(number) for number, kind in re.findall(r"(\d+) (\w+)", plain.partition(" in ")[0])})
    found["failed"] += found.pop("error", 0) + found.pop("errors", 0)
    return found


def processor_seconds() -> float:
    """User and system time of all processes that were started here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(name: str, make: list[str]) -> Result:
    """One target, its output shown as it comes."""
    began, cpu_began, counts = time.monotonic(), processor_seconds(), Counter()
    command = [*make, "--no-print-directory", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        line = b""
        # By pieces, not by lines: pytest's dots are the progress of a part.
        while piece := process.stdout.read1():
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            *lines, line = (line + piece).split(b"\n")
            for ended in lines:
                counts += counts_of(ended.decode(errors="replace"))
    return Result(name, process.returncode, time.monotonic() - began, processor_seconds() - cpu_began, counts)


def total_of(results: list[Result]) -> Result:
    """All parts as one."""
    return Result(
        "all",
        max(result.exit_status for result in results),
        sum(result.seconds for result in results),
        sum(result.processor_seconds for result in results),
        sum((result.counts for result in results), Counter()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make", default="make", help="the make command")
    parser.add_argument("--setup", action="append", default=[], help="a target without which no part can run")
    parser.add_argument("parts", nargs="*", help="targets, in this order")
    arguments = parser.parse_args()
    make = shlex.split(arguments.make)
    results = []
    for name in [*arguments.setup, *arguments.parts]:
        results.append(run(name, make if name in arguments.setup else [*make, "BUILT=1"]))
        print(f"\n== {results[-1]}\n", flush=True)
        if results[-1].exit_status != 0 and name in arguments.setup:
            break
    total = total_of(results)
    print("\n".join(f"== {result}" for result in [*results, total]), flush=True)
    sys.exit(total.exit_status != 0)


if __name__ == "__main__":
    main()

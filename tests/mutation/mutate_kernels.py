"""Removes every flag, barrier and bound of the device kernels, one at a time, and shows that the op tests notice.

    python tests/mutation/mutate_kernels.py [op ...]

Expects the simulated backend to be built (`make build-sim`). Each mutant is compiled against the device simulator and
takes the place of the kernels for one run of the op's tests. Prints a line a mutant and exits with 1 if one survives.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
BUILD = ROOT / "build" / "cmake" / "tests"
TESTS = {"reserve_extend": "page_segments", "release_pages": "page_segments"}
"""Ops whose tests are not called after them."""

# What is removed: (kind, pattern, replacement). A flag goes with its partner, since a lone one only deadlocks.
EDGES = [
    ("order", re.compile(r"^\s*order<[^;]*>\(\);$"), ""),
    ("barrier", re.compile(r"^\s*AscendC::PipeBarrier<[^;]*>\(\);$"), ""),
    ("validity check", re.compile(r"\w*_valid\([^()]*\)"), "true"),
    ("fault check", re.compile(r"\bfault == k\w+Valid\b"), "true"),
    ("bound", re.compile(r"\bmin_of<[^>]*>\(([^(),]*), [^()]*\)"), r"\1"),
]


@dataclass(frozen=True)
class Mutant:
    """One changed line of one file."""

    path: Path
    line: int
    kind: str
    text: str


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a kernel or a device header."""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line.lstrip().startswith("//"):
            continue
        for kind, pattern, replacement in EDGES:
            for match in pattern.finditer(line):
                changed = line[: match.start()] + match.expand(replacement) + line[match.end() :]
                yield Mutant(path, number, kind, changed)


def device_headers(kernel: Path) -> set[Path]:
    """Headers of device code that the kernel includes, directly or not."""
    found: set[Path] = set()
    waiting = [kernel]
    while waiting:
        for name in re.findall(r'#include "((?:device|ops)/[^"]+(?<!_index)\.h)"', waiting.pop().read_text()):
            header = CSRC / name
            if header not in found:
                found.add(header)
                waiting.append(header)
    return found


def build_kernels(kernels: list[Path], mutant: Mutant | None, op: str, out: Path, overlay: Path) -> str | None:
    """Compiles the library of all kernels with `op`'s mutated; None, or what the compiler said."""
    include = [f"-I{overlay}"] if mutant else []
    include += [f"-I{CSRC}", f"-I{ROOT / 'tests' / 'ascend_sim' / 'include'}"]
    stubs = BUILD / "ascend_backend" / "dsv4_sim_kernels_launch" / "launch_stubs.cpp"
    objects = out / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    for source in [*kernels, stubs]:
        target = objects / f"{source.stem}.o"
        mutated = source.name == f"{op}_kernel.cpp" and mutant is not None
        if target.exists() and not mutated and not target.with_suffix(".mutated").exists():
            continue
        file = overlay / source.relative_to(CSRC) if mutated and mutant and mutant.path == source else source
        flags = ["-std=c++17", "-O1", "-fPIC", "-w", f"-I{stubs.parent}", *(include if mutated else include[-2:])]
        done = subprocess.run(["c++", *flags, "-c", str(file), "-o", str(target)], capture_output=True, text=True)
        if done.returncode != 0:
            return done.stderr
        marker = target.with_suffix(".mutated")
        marker.touch() if mutated else marker.unlink(missing_ok=True)
    library = out / "libdsv4_sim_kernels.so"
    simulator = BUILD / "ascend_sim"
    link = ["c++", "-shared", "-o", str(library), *map(str, objects.glob("*.o"))]
    link += [f"-L{simulator}", "-lascend_sim", f"-Wl,-rpath,{simulator}", "-Wl,-soname,libdsv4_sim_kernels.so"]
    done = subprocess.run(link, capture_output=True, text=True)
    return done.stderr if done.returncode != 0 else None


def tests_pass(op: str, out: Path) -> bool:
    """Whether the op's tests pass with the library in `out`."""
    test = ROOT / "tests" / "ops" / f"test_{TESTS.get(op, op)}.py"
    environment = os.environ | {"DSV4_BACKEND": "ascend-sim", "LD_LIBRARY_PATH": str(out)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(test)]
    try:
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def write_overlay(mutant: Mutant, overlay: Path) -> None:
    """Puts the changed file where the compiler finds it before the real one."""
    lines = mutant.path.read_text().splitlines(keepends=True)
    lines[mutant.line - 1] = mutant.text + "\n"
    target = overlay / mutant.path.relative_to(CSRC)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help="ops to mutate; all when none is named")
    arguments = parser.parse_args()
    kernels = sorted(CSRC.glob("ops/*/*_kernel.cpp"))
    survivors = []
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "library"
        seen: set[tuple[Path, int, str]] = set()
        for kernel in kernels:
            op = kernel.parent.name
            if arguments.ops and op not in arguments.ops:
                continue
            message = build_kernels(kernels, None, op, out, out)
            if message is not None or not tests_pass(op, out):
                raise SystemExit(f"{op}: the tests fail without any mutation\n{message or ''}")
            for mutant in (m for path in [kernel, *sorted(device_headers(kernel))] for m in mutants_of(path)):
                # A shared header is judged by the first op that includes it.
                if (mutant.path, mutant.line, mutant.text) in seen:
                    continue
                seen.add((mutant.path, mutant.line, mutant.text))
                with tempfile.TemporaryDirectory() as overlay:
                    write_overlay(mutant, Path(overlay))
                    message = build_kernels(kernels, mutant, op, out, Path(overlay))
                verdict = "does not compile" if message else "SURVIVED" if tests_pass(op, out) else "caught"
                place = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
                print(f"{verdict:16} {op:18} {place:56} {mutant.kind}", flush=True)
                if verdict == "SURVIVED":
                    survivors.append(place)
            build_kernels(kernels, None, op, out, out)
    print(f"{len(survivors)} survived: {', '.join(survivors) or 'none'}")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()

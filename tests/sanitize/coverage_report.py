"""Coverage of csrc as numbers: lines that tests have run, by group of sources, and the lines that none has."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from instrumented import ROOT, Build

GROUPS: dict[str, tuple[str, Callable[[str], bool]]] = {
    # Name of the group: the object files that count, and the sources.
    "CPU ops": ("CMakeFiles/_C.dir", lambda path: path.startswith(("csrc/ops", "csrc/cpu", "csrc/torch"))),
    "ledger": ("CMakeFiles/_C.dir", lambda path: path.startswith("csrc/cache")),
    "index arithmetic": ("CMakeFiles/_C.dir", lambda path: path.startswith("csrc/common")),
    "kernels": ("tests/ascend_backend/CMakeFiles", lambda path: path.startswith(("csrc/ops", "csrc/device"))),
}


@dataclass(frozen=True)
class Source:
    """Lines of one source that have code, and those of them that nothing has run."""

    path: str
    num_lines: int
    missed: tuple[int, ...]


def report_coverage(build: Build) -> None:
    """Prints a line for each source that has missed lines, and one for each group."""
    measured = {folder: list(sources_of(build, folder)) for folder in {folder for folder, _ in GROUPS.values()}}
    for name, (folder, belongs) in GROUPS.items():
        sources = [source for source in measured[folder] if belongs(source.path)]
        for source in sources:
            if source.missed:
                print(f"  {source.path}: {len(source.missed)} of {source.num_lines} missed: {spans(source.missed)}")
        lines, missed = sum(s.num_lines for s in sources), sum(len(s.missed) for s in sources)
        if lines:
            print(f"{name}: {100 * (lines - missed) / lines:.1f} % of {lines} lines")


def sources_of(build: Build, folder: str) -> Iterable[Source]:
    """Sources below csrc that object files in a folder of the build were made of."""
    hits: dict[str, dict[int, int]] = {}
    # The notes of the compiler lie beside every object file; what has run, only beside those that have.
    for notes in sorted((build.folder / "cmake" / folder).rglob("*.gcno")):
        command = ["gcov", "--json-format", "--stdout", str(notes)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=build.folder).stdout)
        for file in found["files"]:
            # The extension's are relative already, for it is built without folders of this machine.
            path = file["file"].removeprefix(f"{ROOT}/")
            if path.startswith("csrc/"):
                lines = hits.setdefault(path, {})
                for line in file["lines"]:
                    lines[line["line_number"]] = lines.get(line["line_number"], 0) + line["count"]
    for path, lines in sorted(hits.items()):
        yield Source(path, len(lines), tuple(sorted(number for number, count in lines.items() if not count)))


def spans(numbers: Iterable[int]) -> str:
    """1, 2, 3, 7 as 1-3, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)

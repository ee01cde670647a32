"""What is removed from a device source: every flag, barrier, bound and guard, one at a time."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    ``where`` names what is changed in a way that survives edits elsewhere in the file; ``text`` is the changed file.
    """

    path: Path
    line: int
    kind: str
    where: str
    text: str


Edit = tuple[int, int, str]
"""Replaces the characters [begin, end) of a file."""

STATEMENTS = {
    "order": re.compile(r"^ *order<[^;]*>\(\);\n", re.M),
    "barrier": re.compile(r"^ *AscendC::PipeBarrier<[^;]*>\(\);\n", re.M),
    "flag": re.compile(r"^ *AscendC::(?:Set|Wait)Flag<[^;]*>\([^;]*\);\n", re.M),
}
FLAG = re.compile(r"^ *AscendC::(?:Set|Wait)Flag<([^;]*)>\(([^;]*)\);\n", re.M)
CHECKS = {
    "validity check": re.compile(r"!?\w*_valid\([^()]*\)"),
    "fault check": re.compile(r"\b(?:admitted\.)?fault [!=]= k\w+Valid\b"),
}
BOUND = re.compile(r"\b(?:min|max)_of(?:<[^<>]*>)?\(")
GUARD = re.compile(r"\bif \(")

COMMENT = re.compile(r"//[^\n]*")


def _closing(text: str, opening: int) -> int:
    """Index of the parenthesis that closes the one at `opening`."""
    depth = 0
    for index in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return index
    raise ValueError("unbalanced parentheses")


def _arguments(text: str, opening: int) -> list[str]:
    """The arguments of the call whose parenthesis is at `opening`."""
    end, depth, begin, found = _closing(text, opening), 0, opening + 1, []
    for index in range(opening + 1, end):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[index], 0)
        if text[index] == "," and depth == 0:
            found.append(text[begin:index])
            begin = index + 1
    return [argument.strip() for argument in (*found, text[begin:end])]


def _bounds(text: str) -> Iterator[tuple[str, list[Edit]]]:
    """Each bound in favour of either side."""
    for match in BOUND.finditer(text):
        opening = match.end() - 1
        for side, argument in enumerate(_arguments(text, opening)):
            # The call's type is kept: a template argument converts.
            kept = f"{match.group()}{argument}, {argument})"
            yield f"bound, only its {('first', 'second')[side]}", [(match.start(), _closing(text, opening) + 1, kept)]


def _guards(text: str) -> Iterator[tuple[str, list[Edit]]]:
    for match in GUARD.finditer(text):
        if text[: match.start()].endswith("else ") or text.startswith("constexpr", match.end()):
            continue
        opening = match.end() - 1
        yield "guard", [(opening + 1, _closing(text, opening), "true")]


def _flag_pairs(text: str) -> Iterator[tuple[str, list[Edit]]]:
    """All that sets or waits for one flag."""
    groups: dict[tuple[str, str], list[Edit]] = {}
    for match in FLAG.finditer(text):
        groups.setdefault((match[1], match[2]), []).append((match.start(), match.end(), ""))
    for edits in groups.values():
        yield "flag with its partner", edits


def _edits(text: str) -> Iterator[tuple[str, list[Edit]]]:
    for kind, pattern in STATEMENTS.items():
        for match in pattern.finditer(text):
            yield kind, [(match.start(), match.end(), "")]
    yield from _flag_pairs(text)
    for kind, pattern in CHECKS.items():
        for match in pattern.finditer(text):
            yield kind, [(match.start(), match.end(), "false" if "!" in match.group() else "true")]
    yield from _bounds(text)
    yield from _guards(text)


def _apply(text: str, edits: list[Edit]) -> str:
    for begin, end, replacement in sorted(edits, reverse=True):
        text = text[:begin] + replacement + text[end:]
    return text


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a kernel or a device header."""
    text = path.read_text()
    # Comments keep their length, so that offsets stay those of the file.
    code = COMMENT.sub(lambda match: " " * len(match.group()), text)
    seen: dict[str, int] = {}
    for kind, edits in _edits(code):
        begin, end, _ = edits[0]
        lines = code[code.rfind("\n", 0, begin) + 1 :].split("\n", 3)
        # The line and its neighbour, counted where they occur again.
        where = " ".join(f"{code[begin:end]} in {lines[0]} {lines[1] if len(lines) > 1 else ''}".split())
        seen[kind + where] = seen.get(kind + where, 0) + 1
        yield Mutant(path, code.count("\n", 0, begin) + 1, kind, f"{where} #{seen[kind + where]}", _apply(text, edits))

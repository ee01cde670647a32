"""What docstrings, comments, messages and pages point to exists: pages, their headings, files and anchors."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("python", "csrc", "docs", "bench", "examples", "tests", "cmake", "distribution")
SUFFIXES = {".py", ".pyi", ".h", ".cpp", ".md", ".mk", ".txt", ".cmake"}
PAGE = r"\bdocs/\w+\.md\b"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def sources() -> Iterator[Path]:
    """Every text of the project that may point somewhere, this one apart."""
    yield from (path for path in ROOT.iterdir() if path.suffix in SUFFIXES or path.name == "Makefile")
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path != Path(__file__).resolve():
                yield path


def words(path: Path) -> str:
    """The text on one line, without what begins a line of a comment."""
    return re.sub(r"\s*\n\s*(?://+|#(?!#)|\*)?\s*", " ", path.read_text(errors="replace"))


def headings(page: Path) -> list[str]:
    """Headings of a page outside its code blocks, as they are written."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)


@cache
def names(page: Path) -> frozenset[str]:
    """Headings as a citation spells them."""
    return frozenset(heading.lower() for heading in headings(page))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Headings as a link spells them."""
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(page))


def cited(text: str) -> Iterator[tuple[str, str]]:
    """Pages, and each heading that follows: ``docs/spec.md, model and pools; groups.``"""
    for match in re.finditer(rf"({PAGE})\)?(?:, ((?!\[|docs/)[^.:()\"`|]+))?", text):
        page, rest = match.groups()
        for heading in (rest or "").split(";"):
            yield page, heading.strip()


def faults_of_citations(path: Path) -> list[str]:
    faults = []
    for page, heading in cited(words(path)):
        if not (ROOT / page).exists():
            faults.append(f"{page}: no such page")
        elif heading and heading.lower() not in names(ROOT / page):
            faults.append(f"{page}, {heading}: no such heading")
    return faults


def faults_of_links(path: Path) -> list[str]:
    faults = []
    for target in LINK.findall(path.read_text()):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        page = (path.parent / file).resolve() if file else path
        if not page.exists():
            faults.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(page):
            faults.append(f"{target}: no such heading")
    return faults


def test_pages_and_headings_that_are_cited_exist() -> None:
    faults = [f"{path.relative_to(ROOT)}: {fault}" for path in sources() for fault in faults_of_citations(path)]
    assert not faults, "\n".join(faults)


def test_files_and_headings_that_are_linked_exist() -> None:
    pages = [path for path in sources() if path.suffix == ".md"]
    faults = [f"{path.relative_to(ROOT)}: {fault}" for path in pages for fault in faults_of_links(path)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(docs/spec.md, windows; allocation)", [("docs/spec.md", "windows"), ("docs/spec.md", "allocation")]),
        ("Source: docs/spec.md, RoPE. YaRN: a paper.", [("docs/spec.md", "RoPE")]),
        ("[docs/spec.md](docs/spec.md), groups).", [("docs/spec.md", ""), ("docs/spec.md", "groups")]),
        ("see docs/npu.md, docs/install.md", [("docs/npu.md", ""), ("docs/install.md", "")]),
    ],
)
def test_a_citation_is_found(text: str, found: list[tuple[str, str]]) -> None:
    assert list(cited(text)) == found


def test_what_does_not_exist_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "source.md"
    source.write_text("Contract: docs/spec.md, no such\nheading. [x](gone.md), [y](#nowhere)\n\n# Here\n\n[z](#here)\n")
    assert faults_of_citations(source) == ["docs/spec.md, no such heading: no such heading"]
    assert faults_of_links(source) == ["gone.md: no such file", "#nowhere: no such heading"]

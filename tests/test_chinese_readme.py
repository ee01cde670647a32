"""README.zh.md says what README.md says: sections, code blocks, tables, links, names and numbers are the same."""

import re
from collections import Counter
from pathlib import Path

import pytest
from test_pages import blocks_of

ROOT = Path(__file__).resolve().parents[1]
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh.md"
TO_EACH_OTHER = {"README.md", "README.zh.md"}


def sections(page: Path) -> list[str]:
    return re.split(r"^## .*$", page.read_text(), flags=re.MULTILINE)


def tables(text: str) -> list[int]:
    """Columns of each row of the tables."""
    return [line.count("|") for line in text.splitlines() if line.startswith("|")]


def numbers(text: str) -> Counter:
    """Numbers that are not part of a word."""
    return Counter(re.findall(r"(?<![\w.])\d+(?:\.\w+)*", text, re.ASCII))


SECTIONS = list(zip(sections(ENGLISH), sections(CHINESE), strict=False))


def test_sections() -> None:
    assert len(sections(ENGLISH)) == len(sections(CHINESE))
    english, chinese = (
        [line for line in page.read_text().splitlines() if line.startswith("#")] for page in (ENGLISH, CHINESE)
    )
    assert [line.split()[0] for line in english] == [line.split()[0] for line in chinese]


def test_code_blocks() -> None:
    english, chinese = ([(block.language, block.code) for block in blocks_of(page)] for page in (ENGLISH, CHINESE))
    assert english == chinese


@pytest.mark.parametrize("number", range(len(SECTIONS)))
def test_tables_links_names_and_numbers(number: int) -> None:
    english, chinese = SECTIONS[number]
    assert tables(english) == tables(chinese)

    def links(text: str) -> list[str]:
        return [target for target in re.findall(r"\]\(([^)]+)\)", text) if target not in TO_EACH_OTHER]

    assert links(english) == links(chinese)
    assert Counter(re.findall(r"`[^`\n]+`", english)) == Counter(re.findall(r"`[^`\n]+`", chinese))
    rows = zip(*(re.findall(r"^\|.*$", text, re.MULTILINE) for text in (english, chinese)), strict=True)
    for row, translated in rows:
        assert numbers(row) == numbers(translated), row

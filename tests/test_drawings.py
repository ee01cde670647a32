"""The pictures of docs/concepts.md are those that their script draws from today's allocator and ops."""

import sys
from pathlib import Path
from xml.etree import ElementTree

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "drawings"
sys.path.insert(0, str(FOLDER))
from draw import drawings  # noqa: E402


def test_pictures_are_as_drawn() -> None:
    drawn = drawings()
    assert drawn == {path.name: path.read_text() for path in FOLDER.glob("*.svg")}
    page = (FOLDER.parent / "concepts.md").read_text()
    for name, svg in drawn.items():
        ElementTree.fromstring(svg)
        assert f"(drawings/{name})" in page

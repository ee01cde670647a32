"""The package's folders form layers: each uses only those below it (docs/spec.md says what each is for)."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "dsv4_npu_ops"
LAYERS = ("layout", "ops", "cache", "graph", "mtp", "disagg")
"""Lowest first. Single modules beside the folders belong to no layer."""


def imports_of(folder: str) -> set[str]:
    """Folders of the package that modules of `folder` import anything from."""
    found = set()
    for source in (PACKAGE / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                parts = name.split(".")
                if parts[0] == "dsv4_npu_ops" and len(parts) > 1:
                    found.add(parts[1])
    return found & set(LAYERS) - {folder}


def test_no_import_runs_back_up() -> None:
    for index, folder in enumerate(LAYERS):
        allowed = set(LAYERS[:index])
        assert imports_of(folder) <= allowed, folder
    assert "layout" in imports_of("ops")

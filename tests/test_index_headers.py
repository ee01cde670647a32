"""Index headers must compile alone as C++17 and include nothing that a device compiler lacks."""

import re
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[1] / "csrc"
HEADERS = sorted([*CSRC.glob("common/*.h"), *CSRC.glob("ops/*/*_index.h")])


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_compiles_alone_as_cxx17(header: Path) -> None:
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", str(CSRC), "-x", "c++"]
    result = subprocess.run(
        [*command, "-"], input=f'#include "{header}"\n', text=True, capture_output=True, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_includes_only_common_headers(header: Path) -> None:
    includes = re.findall(r"#include\s+([<\"][^>\"]+[>\"])", header.read_text())
    assert all(name == "<cstdint>" or name.startswith('"common/') for name in includes), includes

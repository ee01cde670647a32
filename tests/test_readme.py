"""The README's example prints what the README says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_example_prints_its_output() -> None:
    text = (ROOT / "README.md").read_text()
    match = re.search(r"```python\n(.*?)```\s+prints\s+```\n(.*?)```", text, re.DOTALL)
    assert match is not None
    code, output = match.groups()
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == output
    assert len([line for line in code.splitlines() if line.strip()]) <= 20

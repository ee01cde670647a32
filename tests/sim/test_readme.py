"""The README's way from a kernel to a verdict, as it is written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ascend_sim.simulator import Simulator

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "tests" / "ascend_sim" / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def home(sim: Simulator, tmp_path: Path) -> Path:
    """A home folder in which the README's build is the one that these tests share."""
    (tmp_path / "ascend_sim_build").symlink_to(Path(sim.library._name).resolve().parents[1] / "ascend_sim" / "build")
    return tmp_path


def run(command: list[str], home: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(home)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_from_a_kernel_to_a_verdict(home: Path) -> None:
    (install,), (kernel, mend), (script,), (said,) = (blocks(name) for name in ("sh", "cpp", "python", "text"))
    done = run(["sh", "-e", "-c", install], home, ROOT)
    assert done.returncode == 0, done.stderr
    work = home / "work"
    work.mkdir()
    (work / "add_one.cpp").write_text(kernel)
    (work / "check.py").write_text(script)
    wrong = run([sys.executable, "check.py"], home, work)
    assert wrong.returncode == 1 and said.strip() in wrong.stderr
    # No line of the sources' own folder is used: what is installed is enough.
    assert (
        str(home / "ascend_sim" / "share" / "ascend_sim" / "include")
        in (work / "build_add_one" / "build.ninja").read_text()
    )
    last = "        DataCopy(to[tile * 256], local, 256);\n"
    (work / "add_one.cpp").write_text(kernel.replace(last, last + mend))
    right = run([sys.executable, "check.py"], home, work)
    assert right.returncode == 0 and right.stdout == "right, and nothing found\n", right.stderr

"""The README's way from a kernel to a verdict, as it is written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from ascend_sim.simulator import Simulator

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "tests" / "ascend_sim" / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def run(command: list[str], home: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(home)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_from_a_kernel_to_a_verdict(sim: Simulator, tmp_path: Path) -> None:
    home = tmp_path
    (install,), (kernel, mend), (script,), (said,) = (blocks(name) for name in ("sh", "cpp", "python", "text"))
    # These tests have built the simulator already: the README's commands go on from there.
    built = Path(sim.library._name).resolve().parents[1] / "ascend_sim" / "build"
    assert install.count("~/ascend_sim_build") == 3
    install = install.replace("~/ascend_sim_build", str(built))
    done = run(["sh", "-e", "-c", install], home, ROOT)
    assert done.returncode == 0, done.stderr
    work = home / "work"
    work.mkdir()
    (work / "add_one.cpp").write_text(kernel)
    (work / "check.py").write_text(script)
    wrong = run([sys.executable, "check.py"], home, work)
    assert wrong.returncode == 1 and said.strip() in wrong.stderr
    # What is installed is enough: nothing is taken from the folder of the sources.
    cache = (work / "build_add_one" / "CMakeCache.txt").read_text()
    assert f"{home}/ascend_sim/share/ascend_sim/cmake" in cache and str(README.parent) not in cache
    last = "        DataCopy(to[tile * 256], local, 256);\n"
    (work / "add_one.cpp").write_text(kernel.replace(last, last + mend))
    right = run([sys.executable, "check.py"], home, work)
    assert right.returncode == 0 and right.stdout == "right, and nothing found\n", right.stderr

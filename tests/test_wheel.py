"""The wheel carries everything: built from the tree, installed elsewhere, imported from outside the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SMOKE = """
import pathlib, sys
import torch, dsv4_npu_ops as d
site = pathlib.Path(sys.argv[1])
assert site in pathlib.Path(d.__file__).resolve().parents, d.__file__
cos = torch.arange(8.).reshape(4, 2)
rows, _ = d.rope_gather(cos, cos, torch.tensor([2, 0]))
assert rows.tolist() == [[4., 5.], [0., 1.]]
print(d.__version__)
"""


def run(*command: str, cwd: Path, **variables: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    result = subprocess.run(command, cwd=cwd, env=environment, text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_wheel_works_outside_the_checkout(tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    options = ("--no-build-isolation", "--no-deps")
    run(*pip, "wheel", *options, "--wheel-dir", str(tmp_path), str(ROOT), cwd=tmp_path)
    (wheel,) = tmp_path.glob("dsv4_npu_ops-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "dsv4_npu_ops/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "bench")) or "sim" in name.lower()]

    site = tmp_path / "site"
    run(*pip, "install", "--no-deps", "--target", str(site), str(wheel), cwd=tmp_path)
    version = run(sys.executable, "-c", SMOKE, str(site), cwd=tmp_path, PYTHONPATH=str(site))
    assert version.strip() == wheel.name.split("-")[1]

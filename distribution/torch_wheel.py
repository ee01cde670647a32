"""A torch to build against, unpacked into a folder of its own: any release, any processor, never imported."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "torch"
PYTHON = "3.11"
"""Whose wheel is taken: what is built links to none of the libraries that differ between Pythons."""


def platforms(machine: str) -> list[str]:
    """pip's options for wheels that run on Linux on another processor."""
    tags = [*(f"manylinux_2_{minor}" for minor in (34, 31, 28, 27, 26, 24, 17)), "manylinux2014", "linux"]
    return [option for tag in tags for option in ("--platform", f"{tag}_{machine}")]


def unpack_torch(version: str, machine: str, python: str = PYTHON) -> Path:
    """Folder that holds the package ``torch`` of a release; fetched once.

    Args:
        version: as in 2.10.0.
        machine: as in aarch64.
        python: as in 3.11.
    """
    folder = FOLDER / f"{version}-{machine}-py{python}"
    done = folder / ".complete"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--quiet", "--no-deps", "--only-binary=:all:", *platforms(machine), "--python-version", python]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
        subprocess.run([*pip, *options, "--dest", str(folder), f"torch=={version}"], check=True)
        (wheel,) = folder.glob("torch-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        wheel.unlink()
        done.touch()
    return folder

"""Importing the package beside another torch, or where it was not built, says so in a sentence."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dsv4_npu_ops import __version__, _built_for, _extension

PACKAGE = Path(_extension.__file__).parent
RELEASE = ".".join(torch.__version__.split(".")[:2])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package's Python files, as in an unbuilt checkout."""
    package = tmp_path / "dsv4_npu_ops"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("*.so", "_built_for.py", "__pycache__"))
    return package


def import_error(package: Path) -> str:
    """Last line of the traceback."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(package.parent)!r}); import dsv4_npu_ops"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=package.parent)
    assert done.returncode == 1, done.stdout
    assert "During handling" not in done.stderr and "direct cause" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_an_unbuilt_checkout(copy: Path) -> None:
    assert import_error(copy).startswith(f"ImportError: dsv4_npu_ops at {copy} is not built: run `make build` in")


def test_another_torch_is_noticed_before_the_library_is_loaded(copy: Path) -> None:
    (copy / "_built_for.py").write_text('TORCH_RELEASE = "2.7"\n')
    (copy / "_C.abi3.so").write_text("not a library")
    assert import_error(copy).startswith(
        f"ImportError: dsv4_npu_ops at {copy} was built for torch 2.7, and this is torch {torch.__version__}: install "
        f"the build for torch {RELEASE}, or build it in this environment"
    )


def test_an_extension_of_another_python(copy: Path) -> None:
    (copy / "_built_for.py").write_text(f'TORCH_RELEASE = "{RELEASE}"\n')
    (copy / "_C.cpython-36m-x86_64-linux-gnu.so").write_text("not a library")
    assert "has no extension that Python 3" in (line := import_error(copy))
    assert "(found: _C.cpython-36m-x86_64-linux-gnu.so; expected: _C.abi3.so)" in line


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("{major}.{minor}.99", True),
        ("{major}.{minor}.0a0+git123", True),
        ("{major}.{minor}.0+cu130", True),
        ("{major}.{minor}1.0", False),
        ("{major}.{other}.0", False),
        ("3.{minor}.0", False),
    ],
)
def test_what_counts_is_the_minor_release(monkeypatch: pytest.MonkeyPatch, version: str, fits: bool) -> None:
    major, minor = _built_for.TORCH_RELEASE.split(".")
    version = version.format(major=major, minor=minor, other=int(minor) - 1)
    monkeypatch.setattr(torch, "__version__", version)
    if fits:
        assert _extension._load() == __version__
        return
    with pytest.raises(ImportError, match=f"was built for torch {major}.{minor}, and this is torch {version}"):
        _extension._load()


def test_versions_name_the_torch() -> None:
    assert __version__.endswith(f"+torch{RELEASE}")
    assert _built_for.TORCH_RELEASE == RELEASE

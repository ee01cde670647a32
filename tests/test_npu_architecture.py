"""Which architecture the kernels are compiled for, by the kind of NPU (cmake/npu/architecture.cmake)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "cmake" / "npu" / "architecture.cmake"


def ask(kind: str) -> subprocess.CompletedProcess:
    command = ["cmake", f"-DDSV4_SOC_VERSION={kind}", "-P", str(SCRIPT)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [
        ("ascend910b1", "dav-2201"),
        ("ascend910b2c", "dav-2201"),
        ("ascend910b4-1", "dav-2201"),
        ("ascend910_9391", "dav-2201"),
        ("ascend910_9362", "dav-2201"),
        ("ascend950pr_9599", "dav-3510"),
        ("ascend950dt_95a1", "dav-3510"),
    ],
)
def test_a_kind_has_an_architecture(kind: str, architecture: str) -> None:
    done = ask(kind)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"-- Kernels for {kind}: {architecture}"


# The first 910 in two spellings, an inference card, an older name of A5, and what is not spelled as the toolkit does.
@pytest.mark.parametrize(
    "kind", ["", "ascend910a", "ascend910b", "ascend310p3", "ascend910_95", "910b3", "xascend910b3"]
)
def test_any_other_is_refused(kind: str) -> None:
    done = ask(kind)
    assert done.returncode != 0
    message = " ".join(done.stderr.split())
    assert f"DSV4_SOC_VERSION is '{kind}', expected a kind of NPU as the toolkit spells it" in message

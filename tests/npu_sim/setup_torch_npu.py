"""Sets up the simulated NPU: torch_npu in a folder of its own, and the stand-in libraries that it loads.

torch_npu stays out of the environment of CPU users: with it installed, `import torch` and transformers want CANN.
Besides the torch that a torch_npu is for, it needs numpy and pyyaml in the environment that runs the tests
(tests/other_torch makes one for another torch). Doing it again is quick.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from npu_sim import build_dir, torch_npu_dir

VERSION = "2.13.0"  # goes with the torch of the same version


def install_torch_npu(target: Path, version: str) -> None:
    """Installs the wheel without its dependencies, which would bring a second torch, in place of another version.

    Raises SystemExit, and removes nothing, when the folder holds something else.
    """
    if (target / f"torch_npu-{version}.dist-info").is_dir():
        return
    if target.is_dir() and any(target.iterdir()):
        if not any(target.glob("torch_npu-*.dist-info")):
            raise SystemExit(f"{target} holds something else, expected a folder for torch_npu alone")
        shutil.rmtree(target)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", str(target)]
    subprocess.run([*pip, f"torch_npu=={version}"], check=True)


def build_stand_ins(target: Path, build: Path) -> None:
    """Configures once, then builds what has changed."""
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    source = Path(__file__).resolve().parent
    configure = ["cmake", "-S", str(source), "-B", str(build), "-G", "Ninja", f"-DTORCH_NPU_DIR={target.resolve()}"]
    compile_ = ["cmake", "--build", str(build), "--parallel", os.environ.get("MAX_JOBS", "2")]
    for command in ([*configure, f"-DPython3_EXECUTABLE={sys.executable}"], compile_):
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch-npu-dir", type=Path, default=torch_npu_dir())
    parser.add_argument("--build-dir", type=Path, default=build_dir())
    parser.add_argument("--version", default=VERSION, help="torch_npu version")
    arguments = parser.parse_args()
    install_torch_npu(arguments.torch_npu_dir, arguments.version)
    build_stand_ins(arguments.torch_npu_dir, arguments.build_dir)


if __name__ == "__main__":
    main()

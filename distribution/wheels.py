"""Builds wheels: of the torch that is installed here, or of releases named on the command line, for any processor.

One wheel serves one minor release of torch on one kind of processor, and every Python from 3.10 on.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from debian import need_commands
from torch_wheel import ROOT, unpack_torch

DIST = ROOT / "dist"
MACHINES = ("x86_64", "aarch64")
STEP = re.compile(r"\s*\[ *([1-9]\d*/\d+|[1-9]\d*%)\] ")  # of ninja; of make, which builds the NPU library


def run_quietly(command: list[str], environment: dict[str, str]) -> None:
    """Runs a build and shows how far its compiler is; everything it says only when it fails."""
    said = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if step := STEP.match(line):
                print(f"compiled {step[1].replace('/', ' of ')}", flush=True)
    if process.returncode != 0:
        raise SystemExit(f"{''.join(said)}failed: {' '.join(command)}")


def build_wheel(machine: str = platform.machine(), torch: str | None = None, dist: Path = DIST) -> Path:
    """Builds a wheel, with a line for each file that is compiled, and returns its path.

    Args:
        machine: processor that it is for.
        torch: release of torch that it is for; None for the installed one.
        dist: folder of the wheel.
    """
    environment = dict(os.environ)
    if torch is not None:
        environment["DSV4_TORCH_DIR"] = str(unpack_torch(torch, machine) / "torch")
        environment["DSV4_BUILD_DIR"] = str(ROOT / "build" / f"cmake-{machine}-torch{torch}")
    if machine != platform.machine():
        environment["CMAKE_TOOLCHAIN_FILE"] = str(ROOT / "cmake" / f"{machine}-linux-gnu.cmake")
        need_commands({f"{machine}-linux-gnu-g++": f"g++-{machine.replace('_', '-')}-linux-gnu"})
    # What an earlier build left there would be packed too.
    for folder in (*ROOT.glob("build/lib*"), *ROOT.glob("build/bdist*")):
        shutil.rmtree(folder)
    new = dist / ".new"
    shutil.rmtree(new, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--verbose", "--no-build-isolation"]
    command += ["--no-deps", "--wheel-dir", str(new), str(ROOT)]
    command += [f"--config-settings=--build-option=--plat-name=linux_{machine}"]
    run_quietly(command, environment)
    (wheel,) = new.glob("*.whl")
    path = dist / wheel.name
    wheel.replace(path)
    new.rmdir()
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", choices=MACHINES, default=platform.machine(), help="kind of processor")
    parser.add_argument("--torch", nargs="*", metavar="RELEASE", help="as in 2.10.0; the installed one by default")
    arguments = parser.parse_args()
    for release in [None] if arguments.torch is None else arguments.torch:
        wheel = build_wheel(arguments.machine, release)
        torch = wheel.name.split("+torch")[1].split("-")[0]
        name = wheel.relative_to(ROOT)
        print(
            f"{name}: {wheel.stat().st_size / 1e6:.1f} MB, for torch {torch} on {arguments.machine}, Python 3.10 and "
            f"later. Where that torch is installed:\n    pip install --no-deps {name}",
            flush=True,
        )


if __name__ == "__main__":
    main()

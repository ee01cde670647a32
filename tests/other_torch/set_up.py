"""Sets up an environment with another torch, and the package built for it.

    .venv/bin/python tests/other_torch/set_up.py 2.10.0     (makes build/torch-2.10.0)

The environment holds torch and the package alone; all else is seen through to the environment that makes it. Doing it
again is quick, and brings the package up to date.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from cuda_stand_ins import make_stand_ins

REPOSITORY = Path(__file__).resolve().parents[2]
SEEN_THROUGH = "seen_through.pth"


def run_pip(environment: Path, *arguments: str, **variables: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-compile", *arguments], check=True, env=os.environ | variables)


def make_environment(environment: Path, torch: str) -> None:
    """Makes an environment with this torch; one that is complete is left as it is."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment / "lib" / version / "site-packages"
    if (packages / SEEN_THROUGH).is_file():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(environment)], check=True)
    run_pip(environment, f"torch=={torch}")
    make_stand_ins(packages / "torch" / "lib")
    # Last, for it also says that all is there. What a path file names comes after the environment's own packages.
    paths = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (packages / SEEN_THROUGH).write_text("".join(f"{path}\n" for path in paths))


def install_package(environment: Path) -> None:
    """Builds the package for the environment's torch, in folders of its own."""
    config = environment / "setuptools.cfg"
    config.write_text(f"[build]\nbuild_base = {environment / 'package'}\n[egg_info]\negg_base = {environment}\n")
    run_pip(
        environment,
        "--no-build-isolation",
        str(REPOSITORY),
        DIST_EXTRA_CONFIG=str(config),
        DSV4_BUILD_DIR=str(environment / "cmake"),
        PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("torch", help="version of torch, as in 2.10.0")
    parser.add_argument("--environment", type=Path, help="its folder; build/torch-<version> if not given")
    arguments = parser.parse_args()
    environment = (arguments.environment or REPOSITORY / "build" / f"torch-{arguments.torch}").resolve()
    make_environment(environment, arguments.torch)
    install_package(environment)


if __name__ == "__main__":
    main()

"""An aarch64 Python with a torch of its own, run by user-mode emulation; and the wheel, cross-built for it.

Nothing is installed but Debian's cross compiler and qemu-user-static. Debian's arm64 Python and its libraries are
unpacked into build/aarch64/sysroot, by an apt that keeps its lists there too: the machine's packages stay as they are.
"""

import argparse
import re
import shutil
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "aarch64"
SYSROOT = FOLDER / "sysroot"
EMULATOR = "qemu-aarch64-static"
TEST_PACKAGES = ("pytest", "pytest-xdist", "hypothesis", "numpy")

sys.path.insert(0, str(ROOT / "distribution"))

from debian import need_commands  # noqa: E402
from torch_wheel import platforms, unpack_torch  # noqa: E402
from wheels import build_wheel  # noqa: E402

# G_SLICE: glib's allocator, in which emulators before QEMU 8.0 keep their trees, hangs children of a fork while threads
# run (QEMU issue 285).
LAUNCHER = """\
#!/bin/sh
# aarch64 Python beside torch {torch}, emulated as a server processor without SVE.
export EMULATED_PYTHON="$0" PYTHONPATH="{path}${{PYTHONPATH:+:$PYTHONPATH}}" QEMU_CPU=neoverse-n1
export G_SLICE=always-malloc
exec {emulator} -L {sysroot} {python} "$@"
"""
SITE_CUSTOMIZE = """\
# A process that Python starts runs under the emulator too.
import os
import sys

sys.executable = os.path.abspath(os.environ["EMULATED_PYTHON"])
"""


def make_sysroot() -> Path:
    """Unpacks Debian's arm64 Python once; returns the interpreter."""
    if not (FOLDER / ".sysroot").exists():
        apt = FOLDER / "apt"
        for folder in (apt / "lists" / "partial", apt / "archives" / "partial", SYSROOT):
            folder.mkdir(parents=True, exist_ok=True)
        (apt / "status").touch()
        options = {
            "APT::Architecture": "arm64",
            "APT::Architectures": "arm64",
            "APT::Sandbox::User": "",
            "Debug::NoLocking": "true",
            "Dir::State::lists": apt / "lists",
            "Dir::State::status": apt / "status",
            "Dir::Cache": apt,
            "Dir::Cache::archives": apt / "archives",
        }
        command = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in options.items())]
        subprocess.run([*command, "update"], check=True)
        packages = ["--yes", "--no-install-recommends", "python3", "libstdc++6"]
        subprocess.run([*command, "install", "--download-only", *packages], check=True, stdout=subprocess.DEVNULL)
        for package in (apt / "archives").glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", str(package), str(SYSROOT)], check=True)
        shutil.rmtree(apt)
        (FOLDER / ".sysroot").touch()
    return next(path for path in (SYSROOT / "usr/bin").glob("python3.*") if re.fullmatch(r"python3\.\d+", path.name))


def requirements_of(site: Path, python: str) -> list[str]:
    """What a torch needs on aarch64; its markers say much more for x86."""
    (info,) = site.glob("torch-*.dist-info")
    target = {"platform_machine": "aarch64", "platform_system": "Linux", "sys_platform": "linux", "extra": ""}
    target |= {"python_version": python, "python_full_version": f"{python}.0"}
    needed = [Requirement(line) for line in Distribution.at(info).requires or []]
    return [f"{need.name}{need.specifier}" for need in needed if need.marker is None or need.marker.evaluate(target)]


def install(target: Path, python: str, *requirements: str) -> None:
    """Installs packages for the emulated Python; what they need in turn must not depend on the processor."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    options = [
        "--root-user-action=ignore",
        "--no-compile",
        "--upgrade",
        "--only-binary=:all:",
        *platforms("aarch64"),
        "--python-version",
        python,
    ]
    subprocess.run([*pip, *options, "--target", str(target), *requirements], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", required=True, help="release, as in 2.10.0")
    torch = parser.parse_args().torch
    need_commands({EMULATOR: "qemu-user-static", "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu"})
    interpreter = make_sysroot()
    python = interpreter.name.removeprefix("python")
    torch_site = unpack_torch(torch, "aarch64", python)
    folder = FOLDER / f"torch-{torch}"
    # What the package may need, and what tests need, in folders of their own: the core is imported without the latter.
    core, tests = folder / "core", folder / "tests"
    if not (folder / ".complete").exists():
        install(core, python, *requirements_of(torch_site, python))
        install(tests, python, *TEST_PACKAGES)
        (folder / ".complete").touch()
    (core / "sitecustomize.py").write_text(SITE_CUSTOMIZE)
    wheel = build_wheel("aarch64", torch, folder)
    shutil.rmtree(core / "dsv4_npu_ops", ignore_errors=True)
    install(core, python, "--no-deps", str(wheel))
    for name, path in {"python-core": [torch_site, core], "python": [torch_site, core, tests]}.items():
        launcher = folder / name
        launcher.write_text(
            LAUNCHER.format(
                torch=torch,
                path=":".join(map(str, path)),
                emulator=shutil.which(EMULATOR),
                sysroot=SYSROOT,
                python=interpreter,
            )
        )
        launcher.chmod(0o755)


if __name__ == "__main__":
    main()

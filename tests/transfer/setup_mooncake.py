"""Installs the extra `disagg`: Mooncake's wheel, and where we may the Debian packages of the libraries it links to."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
LIBRARIES = {"libibverbs.so.1": "libibverbs1", "libnuma.so.1": "libnuma1", "liburing.so.2": "liburing2"}


def missing_packages() -> list[str]:
    """Debian packages of the libraries that the loader does not find."""
    missing = []
    for library, package in LIBRARIES.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            missing.append(package)
    return missing


def main() -> None:
    match = re.search(r'"(mooncake-[^"]+)"', PYPROJECT.read_text())
    if match is None:
        raise RuntimeError(f"{PYPROJECT}: expected a mooncake package in the extra disagg, found none")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, match[1]], check=True)
    packages = missing_packages()
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "--yes", "-qq", "--no-install-recommends", *packages]
        if subprocess.run(install, check=False, stdout=subprocess.DEVNULL).returncode:
            subprocess.run(["apt-get", "update", "-qq"], check=False)
            subprocess.run(install, check=False, stdout=subprocess.DEVNULL)
    if packages := missing_packages():
        print(f"Mooncake lacks system libraries; its tests will be skipped. Install {' '.join(packages)}.")


if __name__ == "__main__":
    main()

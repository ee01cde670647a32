"""Debian packages that a target needs beside what pip brings."""

import os
import shutil
import subprocess


def need_commands(packages: dict[str, str]) -> None:
    """Installs the packages of missing commands where we may.

    Args:
        packages: the package that has a command, by command.

    Raises:
        SystemExit: a command is missing and cannot be installed; names the packages.
    """
    missing = [package for command, package in packages.items() if shutil.which(command) is None]
    if not missing:
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "--yes", "-qq", "--no-install-recommends", *missing]
        # Without lists of packages the first try finds nothing.
        if subprocess.run(install, check=False, capture_output=True).returncode:
            subprocess.run(["apt-get", "update", "-qq"], check=False)
            subprocess.run(install, check=False, stdout=subprocess.DEVNULL)
    lacking = [command for command in packages if shutil.which(command) is None]
    if lacking:
        raise SystemExit(f"{', '.join(lacking)} not found: install {' '.join(missing)} as root (names of Debian)")

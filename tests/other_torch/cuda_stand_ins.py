"""Lets a CUDA build of torch be imported without NVIDIA's libraries, for what needs torch on the CPU alone.

On x86_64 most versions of torch are on the package index as CUDA builds only. Their libraries name some fifteen of
NVIDIA's, gigabytes of packages, and are not loaded without them. Here each gets a stand-in under its name: every
function that torch takes from any of them returns 100, which is CUDA's "no device", so that torch finds none.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

NAME = re.compile(r"lib(cu|nccl|nv)\w*\.so\.\d+")
FUNCTION = re.compile(r"(__cuda|cu|nccl|nv)[A-Za-z]\w*")
NEEDED = re.compile(r"\(NEEDED\).*\[(.*)\]")


def _run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def wanted_from_nvidia(libraries: list[Path]) -> tuple[set[str], dict[str, set[str]]]:
    """What `libraries` want of NVIDIA's: names of libraries, and functions by their symbol version ("" for none)."""
    names: set[str] = set()
    undefined: set[str] = set()
    defined: set[str] = set()
    for library in libraries:
        names |= {name for name in NEEDED.findall(_run("readelf", "--dynamic", library)) if NAME.fullmatch(name)}
        for line in _run("nm", "--dynamic", library).splitlines():
            kind, symbol = line.split()[-2:]
            if kind == "U":
                undefined.add(symbol)
            else:
                defined.add(symbol.partition("@")[0])
    functions: dict[str, set[str]] = defaultdict(set)
    for symbol in undefined:
        function, _, version = symbol.partition("@")
        if function not in defined and FUNCTION.fullmatch(function):
            functions[version].add(function)
    return names, functions


def make_stand_ins(folder: Path) -> list[str]:
    """Puts a stand-in beside torch's own libraries for each of NVIDIA's that they load; returns the names made.

    `folder` is torch/lib, where torch's libraries look too. Makes nothing for a CPU build of torch.
    """
    own = [path for path in sorted(folder.glob("*.so*")) if not NAME.fullmatch(path.name)]
    names, functions = wanted_from_nvidia(own)
    missing = sorted(name for name in names if not (folder / name).exists())
    with tempfile.TemporaryDirectory() as scratch:
        source, versions = Path(scratch, "stand_ins.c"), Path(scratch, "versions.map")
        every_function = sorted(set().union(*functions.values()))
        source.write_text("".join(f"long {function}(void) {{ return 100; }}\n" for function in every_function))
        versions.write_text(
            "".join(
                f"{version} {{ global: {'; '.join(sorted(functions[version]))}; }};\n"
                for version in functions
                if version
            )
        )
        # All hold the same functions: a loader takes the first that it finds, and looks for a version in the library
        # that the version is said to come from.
        for name in missing:
            options = [f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}"]
            _run("cc", "-shared", "-fPIC", "-fno-builtin", "-o", folder / name, source, *options)
    return missing

"""Whether a torch for aarch64 has every symbol that the wheel built for it asks for: what loading it would find out.

For releases whose libraries ask for CUDA's and so cannot be loaded here.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "distribution"))

from torch_wheel import unpack_torch
from wheels import build_wheel


def symbols(which: str, *libraries: Path) -> set[str]:
    """Dynamic C++ symbols of torch's namespaces: ``--undefined-only`` or ``--defined-only``."""
    done = subprocess.run(["nm", "--dynamic", which, *map(str, libraries)], capture_output=True, text=True, check=True)
    return set(re.findall(r"\b(_Z\w*(?:2at|3c10|5torch)\w*)", done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", required=True, help="release, as in 2.15.0")
    torch = parser.parse_args().torch
    libraries = unpack_torch(torch, "aarch64") / "torch" / "lib"
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel("aarch64", torch, Path(folder))
        extension = zipfile.ZipFile(wheel).extract("dsv4_npu_ops/_C.abi3.so", folder)
        wanted = symbols("--undefined-only", Path(extension))
    missing = wanted - symbols("--defined-only", *(libraries / f"lib{name}.so" for name in ("c10", "torch_cpu")))
    if missing or len(wanted) < 50:
        raise SystemExit(
            f"torch {torch} lacks {len(missing)} of {len(wanted)} symbols: {' '.join(sorted(missing)[:3])}"
        )
    print(f"torch {torch} has all {len(wanted)} symbols that {wheel.name} asks of it")


if __name__ == "__main__":
    main()

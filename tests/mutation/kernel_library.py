"""The library of simulated kernels with one kernel compiled from changed sources."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
BUILD = ROOT / "build" / "cmake" / "tests"
STUBS = BUILD / "ascend_backend" / "dsv4_sim_kernels_launch"
SIMULATOR = BUILD / "ascend_sim"
NAME = "libdsv4_sim_kernels.so"


class BuildError(RuntimeError):
    """What the compiler said."""


def kernel_of(op: str) -> Path:
    """Device source of an op, or of another form of one, which has a name of its own."""
    (kernel,) = CSRC.glob(f"ops/*/{op}_kernel.cpp")
    return kernel


def device_headers(kernel: Path) -> set[Path]:
    """Headers of device code that the kernel includes, directly or not."""
    found: set[Path] = set()
    waiting = [kernel]
    while waiting:
        for name in re.findall(r'#include "((?:device|ops)/[^"]+(?<!_index)\.h)"', waiting.pop().read_text()):
            header = CSRC / name
            if header not in found:
                found.add(header)
                waiting.append(header)
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(done.stderr)


def _compile(source: Path, target: Path, overlay: Path | None) -> None:
    folders = [*([overlay] if overlay else []), STUBS, CSRC, ROOT / "tests" / "ascend_sim" / "include"]
    # No optimisation: the kernel runs for less time than it compiles.
    flags = ["-std=c++17", "-O0", "-fPIC", "-w", *(f"-I{folder}" for folder in folders)]
    _run(["c++", *flags, "-c", str(source), "-o", str(target)])


class KernelLibrary:
    """Objects of every kernel as it is, in a folder; each mutant replaces one of them."""

    def __init__(self, folder: Path, ops: list[str]) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        _compile(STUBS / "launch_stubs.cpp", folder / "stubs.o", None)
        self._objects = {op: folder / f"{op}.o" for op in ops}
        for op, target in self._objects.items():
            _compile(kernel_of(op), target, None)

    def link(self, folder: Path, op: str | None = None, path: Path | None = None, text: str = "") -> Path:
        """The library in a folder, with `op` compiled over a file `path` that says `text`.

        Raises:
            BuildError: the change does not compile.
        """
        objects = dict(self._objects)
        folder.mkdir(exist_ok=True)
        if op is not None and path is not None:
            overlay = folder / "overlay"
            changed = overlay / path.relative_to(CSRC)
            changed.parent.mkdir(parents=True, exist_ok=True)
            changed.write_text(text)
            # First, so that the linker takes inline functions, which other kernels share, from here.
            objects = {op: folder / "mutant.o", **{other: kept for other, kept in objects.items() if other != op}}
            kernel = kernel_of(op)
            try:
                _compile(changed if path == kernel else kernel, objects[op], overlay)
            finally:
                changed.unlink()
        library = folder / NAME
        library.unlink(missing_ok=True)
        command = ["c++", "-shared", "-o", str(library), str(self._folder / "stubs.o"), *map(str, objects.values())]
        _run([*command, f"-L{SIMULATOR}", "-lascend_sim", f"-Wl,-rpath,{SIMULATOR}", f"-Wl,-soname,{NAME}"])
        return library

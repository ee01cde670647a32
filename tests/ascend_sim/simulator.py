"""Build kernels against the device simulator and run them from Python. Everything it reports is simulated."""

from __future__ import annotations

import ctypes
import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def _run(*commands: list[str]) -> None:
    for command in commands:
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{result.stdout}\n{result.stderr}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Several processes may want one build at once: the first makes it, the others wait and find it made."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _configure(source: Path, build_dir: Path) -> list[str]:
    command = ["cmake", "-S", str(source), "-B", str(build_dir), f"-DPython3_EXECUTABLE={sys.executable}"]
    if shutil.which("ninja") and not (build_dir / "CMakeCache.txt").exists():
        command += ["-G", "Ninja"]
    return command


def install(folder: Path) -> Path:
    """Build the simulator and install it below ``folder``, only what changed; where it is installed already, nothing.

    Returns:
        The prefix of the installation.

    Raises:
        RuntimeError: with the compiler's output when the build fails.
    """
    if not (HERE / "src").is_dir():
        return HERE.parents[1]
    prefix, build_dir = folder / "installed", folder / "build"
    with _locked(folder):
        _run(
            _configure(HERE, build_dir),
            ["cmake", "--build", str(build_dir), "--parallel", "2"],
            ["cmake", "--install", str(build_dir), "--prefix", str(prefix)],
        )
    return prefix


def build(
    sources: Sequence[Path],
    build_dir: Path,
    include_dirs: Sequence[Path] = (),
    *,
    include_first: Sequence[Path] = (),
    standard: int = 17,
    simulator_dir: Path | None = None,
) -> Path:
    """Compile Ascend C sources with CMake, only what changed.

    Args:
        sources: kernel sources.
        build_dir: CMake build folder, one per set of sources.
        include_dirs: where the kernels' own headers are.
        include_first: headers that every source includes before its first line, for what the build of an operator
            project puts there: a tiling struct.
        standard: of C++, 17 or 20.
        simulator_dir: where the simulator is built when it is not installed; the default is a folder beside
            ``build_dir``, so that all kernels share it.

    Returns:
        The kernel library.

    Raises:
        RuntimeError: with the compiler's output when the build fails.
    """
    prefix = install(simulator_dir or build_dir.resolve().parent / "ascend_sim")

    def paths(name: str, values: Sequence[Path]) -> str:
        return f"-D{name}=" + ";".join(str(Path(value).resolve()) for value in values)

    configure = _configure(HERE / "project", build_dir)
    configure += [
        f"-Dascend_sim_DIR={prefix / 'share' / 'ascend_sim' / 'cmake'}",
        f"-DASCEND_SIM_CXX_STANDARD={standard}",
        paths("ASCEND_SIM_KERNELS", sources),
        paths("ASCEND_SIM_KERNEL_INCLUDES", include_dirs),
        paths("ASCEND_SIM_INCLUDE_FIRST", include_first),
    ]
    with _locked(build_dir):
        _run(configure, ["cmake", "--build", str(build_dir), "--parallel", "2"])
    return build_dir / "libascend_kernels.so"


@dataclass(frozen=True)
class SimulatedError:
    """One reported mistake.

    ``count`` is how often the same line made it; ``chain`` names the kernel lines that led there, innermost first.
    """

    kind: str
    kernel: str
    block: int
    call: str
    file: str
    line: int
    pipe: str
    count: int
    chain: str
    message: str


class KernelError(RuntimeError):
    """A launch that the simulator found fault with."""

    def __init__(self, errors: list[SimulatedError]) -> None:
        super().__init__("\n".join(error.message for error in errors))
        self.errors = errors


class Simulator:
    """One process-wide simulator and the kernels of one library."""

    def __init__(self, kernel_library: Path) -> None:
        # The simulator's own symbols are found through the kernels' dependency on it, so that several kernel
        # libraries in one process share one simulator.
        self.library = ctypes.CDLL(str(kernel_library))
        sim = self.library
        sim.ascend_sim_errors_json.restype = ctypes.c_char_p
        sim.ascend_sim_warnings_json.restype = ctypes.c_char_p
        sim.ascend_sim_suppress.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int32]
        sim.ascend_sim_counters_json.restype = ctypes.c_char_p
        sim.ascend_sim_error_count.restype = ctypes.c_uint64
        sim.ascend_sim_launch_count.restype = ctypes.c_uint64
        sim.ascend_sim_register_gm.argtypes = [
            ctypes.c_void_p,
            ctypes.c_uint64,
            ctypes.c_char_p,
            ctypes.c_int32,
        ]
        sim.ascend_sim_register_gm_mapped.argtypes = [ctypes.c_uint64, *sim.ascend_sim_register_gm.argtypes]
        sim.ascend_sim_unregister_gm.argtypes = [ctypes.c_void_p]
        for name in ("set_tiling_key", "set_seed", "set_max_errors", "set_max_calls"):
            getattr(sim, f"ascend_sim_{name}").argtypes = [ctypes.c_uint64]

    def register(self, address: int, num_bytes: int, name: str, initialised: bool = True) -> None:
        """Make host memory known as global memory.

        ``initialised=False``: unwritten until a kernel writes it. A launch that is given such memory and leaves all of
        it unwritten is an error, one that leaves some of it a warning.
        """
        self.library.ascend_sim_register_gm(address, num_bytes, name.encode(), int(initialised))

    def register_mapped(self, device_address: int, host: int, num_bytes: int, name: str) -> None:
        """Make host memory known under the address that kernels are given."""
        self.library.ascend_sim_register_gm_mapped(device_address, host, num_bytes, name.encode(), 1)

    def unregister(self, address: int) -> None:
        """Forget an allocation."""
        self.library.ascend_sim_unregister_gm(address)

    def clear_memory(self) -> None:
        """Forget all allocations."""
        self.library.ascend_sim_clear_gm()

    def configure(
        self,
        *,
        profile: str | None = None,
        tiling_key: int | None = None,
        seed: int | None = None,
        order: str | None = None,
        strict: bool | None = None,
        scalar_gm_stores: bool | None = None,
        report_overflow: bool | None = None,
        report_special_half: bool | None = None,
        max_calls: int | None = None,
        memory_cold: bool | None = None,
    ) -> None:
        """Set switches; what is None stays. ``order`` is random, ascending or descending.

        ``profile``: "strict", where a kernel has to say everything itself, or "cann", as CANN's projects build it (see
        README.md). It sets the switches that it is made of, before those that are given too.
        """
        sim = self.library
        if profile is not None:
            sim.ascend_sim_set_profile(("strict", "cann").index(profile))
        if tiling_key is not None:
            sim.ascend_sim_set_tiling_key(tiling_key)
        if seed is not None:
            sim.ascend_sim_set_seed(seed)
        if order is not None:
            sim.ascend_sim_set_block_order(("random", "ascending", "descending").index(order))
        if strict is not None:
            sim.ascend_sim_set_strict(int(strict))
        if scalar_gm_stores is not None:
            sim.ascend_sim_allow_scalar_gm_stores(int(scalar_gm_stores))
        if report_overflow is not None:
            sim.ascend_sim_report_overflow(int(report_overflow))
        if report_special_half is not None:
            sim.ascend_sim_report_special_half(int(report_special_half))
        if max_calls is not None:
            sim.ascend_sim_set_max_calls(max_calls)
        if memory_cold is not None:
            sim.ascend_sim_set_memory_cold(int(memory_cold))

    def launch(self, kernel: str, block_dim: int, *args: Any) -> int:
        """Run a kernel over ``block_dim`` blocks and return its status: 0, or 1 when it made mistakes.

        Arguments: ints are passed as 64-bit values (pointers and integer scalars), ctypes values as they are,
        ctypes structures by reference (the stub copies them).
        """
        converted: list[Any] = []
        for value in args:
            if isinstance(value, ctypes.Structure):
                converted.append(ctypes.byref(value))
            elif isinstance(value, bool):
                converted.append(ctypes.c_bool(value))
            elif isinstance(value, int):
                converted.append(ctypes.c_int64(value))
            else:
                converted.append(value)
        function = getattr(self.library, f"aclrtlaunch_{kernel}")
        function.restype = ctypes.c_uint32
        return int(function(ctypes.c_uint32(block_dim), None, *converted))

    def run(self, kernel: str, block_dim: int, *args: Any) -> None:
        """Launch and raise KernelError when the kernel made mistakes."""
        self.clear_errors()
        if self.launch(kernel, block_dim, *args) != 0:
            raise KernelError(self.errors())

    def errors(self) -> list[SimulatedError]:
        """Return what has been reported since the last clear."""
        return [SimulatedError(**error) for error in json.loads(self.library.ascend_sim_errors_json())]

    def warnings(self) -> list[SimulatedError]:
        """Return what has been reported since the last clear without being a mistake."""
        return [SimulatedError(**error) for error in json.loads(self.library.ascend_sim_warnings_json())]

    def suppress(self, kind: str, file: str = "", line: int = 0) -> None:
        """Leave out findings of a kind ("order.raw", "order.*") that you know.

        ``file`` is the end of a path, ``line`` its line: where the call is or where the helper that makes it was
        called from; "" and 0 mean any. What ends a block is always reported.
        """
        self.library.ascend_sim_suppress(kind.encode(), file.encode(), line)

    def clear_suppressions(self) -> None:
        """Report everything again."""
        self.library.ascend_sim_clear_suppressions()

    def clear_errors(self) -> None:
        """Forget reported errors and warnings."""
        self.library.ascend_sim_clear_errors()

    def counters(self) -> list[dict[str, Any]]:
        """Return the counters of every launch since the last clear."""
        return json.loads(self.library.ascend_sim_counters_json())

    def clear_counters(self) -> None:
        """Forget counters."""
        self.library.ascend_sim_clear_counters()

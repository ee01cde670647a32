"""The project's C++ built again with instrumentation, and the environment in which Python loads that build.

A build has a folder of its own, build/<kind>: the extension and the simulators, and a `package` folder that has the
checkout's Python modules as links beside the instrumented extension.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# What AddressSanitizer says once in a process that makes stacks, whatever it was told of them: the simulator's fibers
# tell it which one runs.
OF_OWN_STACKS = re.compile(r"==\d+==WARNING: ASan doesn't fully support makecontext/swapcontext functions .*\n")
BUILT = ("_C.abi3.so", "_built_for.py")  # what a build puts into the package

# Frame pointers for stacks that start in code without them; line tables name the lines.
_READABLE = "-O1 -g1 -fno-omit-frame-pointer"


@dataclass(frozen=True)
class Kind:
    """One kind of instrumentation.

    Attributes:
        flags: of the compiler, and so of the linker.
        kernel_flags: further ones for the kernels in the simulator.
        targets: what is built of the main CMake project.
        npu_sim: whether the simulated NPU is built too.
        libraries: sources of this folder that are built with the same flags.
        preloaded: those of them that must be in the process early.
        runtimes: libraries of the compiler that must be in the process before anything else.
        options: settings of the runtimes, by environment variable.
    """

    flags: str
    kernel_flags: str = ""
    targets: tuple[str, ...] = ("_C",)
    npu_sim: bool = False
    libraries: tuple[str, ...] = ("planted_faults",)
    preloaded: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)


# Every fault is reported and the run goes on, so that one run shows all of them. libstdc++ is loaded early because a
# sanitizer looks for its functions when it starts, and Python does not bring them.
KINDS = {
    "address": Kind(
        f"{_READABLE} -fsanitize=address,undefined,float-divide-by-zero,float-cast-overflow -fsanitize-recover=all",
        # The simulator itself checks every access of a kernel; instrumented they take minutes each to compile.
        kernel_flags="-fno-sanitize=all",
        targets=("_C", "dsv4_ascend_backend"),
        npu_sim=True,
        runtimes=("libasan.so", "libstdc++.so.6"),
        options={
            # Python and torch keep memory until the end on purpose. A crash stays one: that it is one is what tests ask
            # of a host that reads the simulated NPU's memory.
            "ASAN_OPTIONS": "halt_on_error=0:detect_leaks=0:handle_segv=0",
            "UBSAN_OPTIONS": "halt_on_error=0:print_stacktrace=1",
        },
    ),
    "thread": Kind(
        f"{_READABLE} -fsanitize=thread",
        libraries=("planted_faults", "openmp_order"),
        preloaded=("openmp_order",),
        runtimes=("libtsan.so", "libstdc++.so.6"),
        options={"TSAN_OPTIONS": "halt_on_error=0"},
    ),
    "coverage": Kind("-O0 -g1 --coverage -fprofile-update=atomic", targets=("_C", "dsv4_ascend_backend"), libraries=()),
}


class Build:
    """An instrumented build of this checkout."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.settings = KINDS[kind]
        self.folder = ROOT / "build" / kind
        self.reports = self.folder / "reports"

    def make(self) -> None:
        """Builds what has changed."""
        cmake_folder = self.folder / "cmake"
        settings = {
            "DSV4_SIM_KERNEL_OPTIONS": self.settings.kernel_flags,
            "CMAKE_DISABLE_PRECOMPILE_HEADERS": "ON",  # with a sanitizer they take longer than they save
            "Python_EXECUTABLE": sys.executable,
        }
        self._run_cmake(ROOT, cmake_folder, settings, self.settings.targets)
        self._link_package(cmake_folder)
        if self.settings.npu_sim:
            self._make_npu_sim()
        for name in self.settings.libraries:
            command = [_compiler(), "-std=c++20", "-shared", "-fPIC", "-fopenmp", "-Wall", "-Wextra"]
            files = [str(HERE / f"{name}.cpp"), "-o", str(self.library(name))]
            subprocess.run([*command, *self.settings.flags.split(), *files], check=True)

    def library(self, name: str) -> Path:
        """A library of this folder."""
        return self.folder / f"lib{name}.so"

    def environment(self, **more: str) -> dict[str, str]:
        """In which Python, started anew, loads this build. Reports go to `reports`, one file a process."""
        self.reports.mkdir(parents=True, exist_ok=True)
        preloaded = [_runtime(name) for name in self.settings.runtimes]
        preloaded += [str(self.library(name)) for name in self.settings.preloaded]
        options = {name: f"{value}:log_path={self.reports / name}" for name, value in self.settings.options.items()}
        return {
            **os.environ,
            **options,
            "DSV4_SANITIZE": self.kind,
            "DSV4_BUILD_ROOT": str(self.folder),
            "NPU_SIM_BUILD_DIR": str(self.folder / "npu_sim"),
            "CFLAGS": self.settings.flags,  # of the simulators, which have builds of their own
            "CXXFLAGS": self.settings.flags,
            "LD_PRELOAD": os.pathsep.join(preloaded),
            "PYTHONPATH": str(self.folder / "package"),
            **more,
        }

    def clear_reports(self) -> None:
        """Removes what earlier runs have reported, or counted."""
        for report in [*self.reports.glob("*"), *self.folder.rglob("*.gcda")]:
            report.unlink()

    def reported(self) -> list[Path]:
        """Files with what the sanitizers have found."""
        reports = sorted(self.reports.glob("*"))
        return [report for report in reports if OF_OWN_STACKS.sub("", report.read_text(errors="replace"))]

    def _run_cmake(self, source: Path, folder: Path, settings: dict[str, str], targets: tuple[str, ...]) -> None:
        tree = os.environ | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "CFLAGS": self.settings.flags,
            "CXXFLAGS": self.settings.flags,
        }
        # Not Release, whose options would come last; "None" is a name that CMake adds no options for.
        configure = ["cmake", "-S", str(source), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None"]
        subprocess.run([*configure, *(f"-D{name}={value}" for name, value in settings.items())], env=tree, check=True)
        compile_ = ["cmake", "--build", str(folder), "-j", os.environ.get("MAX_JOBS", "2"), "--target"]
        subprocess.run([*compile_, *targets], env=tree, check=True)

    def _make_npu_sim(self) -> None:
        """The simulated device and its kernel launches; whatever lies beside them comes from the ordinary build."""
        folder, ordinary = self.folder / "npu_sim", ROOT / "build" / "npu_sim"
        settings = {"TORCH_NPU_DIR": str(ROOT / "build" / "torch_npu"), "Python3_EXECUTABLE": sys.executable}
        self._run_cmake(ROOT / "tests" / "npu_sim", folder, settings, ("ascend_device_sim", "ascend_kernel_bridge"))
        for library in [*ordinary.glob("*.so"), *ordinary.glob("*_ops/*.so")]:
            link = folder / library.relative_to(ordinary)
            if not link.exists():
                link.symlink_to(library)

    def _link_package(self, cmake_folder: Path) -> None:
        package = self.folder / "package" / "dsv4_npu_ops"
        package.mkdir(parents=True, exist_ok=True)
        for old in package.iterdir():
            if old.is_symlink():
                old.unlink()
        for source in (ROOT / "python" / "dsv4_npu_ops").iterdir():
            if source.suffix != ".so" and source.name not in (*BUILT, "__pycache__"):
                (package / source.name).symlink_to(source)
        for name in BUILT:
            (package / name).symlink_to(cmake_folder / name)


def _compiler() -> str:
    return os.environ.get("CXX", "c++")


def _runtime(name: str) -> str:
    found = subprocess.run(
        [_compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not os.path.isabs(found):
        raise SystemExit(f"{name} is missing, expected the sanitizer runtimes of {_compiler()}")
    return found

"""Builds the C++ part with CMake against the torch that is installed, and names that torch in version and dependencies.

Everything else is declared in pyproject.toml. What the environment may say (docs/install.md):

DSV4_TORCH_DIR     folder of another torch package to build against, which is not imported: for cross builds
DSV4_BUILD_DIR     folder of the build, instead of build/cmake
DSV4_SOC_VERSION   kind of NPU, as in ascend910_9391: the NPU library is built too (docs/npu.md). That needs torch_npu
                   installed and a toolkit at ASCEND_HOME_PATH; without it, the package is for CPUs
MAX_JOBS           compilers at a time
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
EXTENSION = "dsv4_npu_ops._C"
NPU_LIBRARY = "dsv4_npu_ops.libdsv4_npu"
BUILD_DIR = Path(os.environ.get("DSV4_BUILD_DIR", ROOT / "build" / "cmake")).resolve()
SOC_VERSION = os.environ.get("DSV4_SOC_VERSION", "").lower()
OLDEST_TORCH, NEWEST_TORCH = (2, 8), (2, 15)
SUPPORTED = "2.8 to 2.15"


class CMakeBuild(build_ext):
    """Configures and builds each part once; the results land where setuptools expects them."""

    def get_ext_filename(self, fullname: str) -> str:
        if fullname.endswith(NPU_LIBRARY.rpartition(".")[2]):
            # A plain library that no Python imports: no tag of an interpreter in its name.
            return os.path.join(*fullname.split(".")) + ".so"
        return super().get_ext_filename(fullname)

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        if ext.name == EXTENSION:
            build_dir = run_cmake(ROOT, "", "Ninja", "_C", Python_EXECUTABLE=sys.executable)
            put_extension(build_dir, target.parent)
            return
        run_cmake(
            ROOT / "cmake" / "npu",
            "_npu",
            "Unix Makefiles",  # the toolkit's kernel project expects them
            "dsv4_npu",
            CMAKE_SKIP_BUILD_RPATH="ON",  # as the extension: whoever loads it has loaded what it needs
            DSV4_OUTPUT_DIR=str(target.parent),
            DSV4_SOC_VERSION=SOC_VERSION,
            DSV4_CANN_HOME=cann_home(),
            DSV4_TORCH_NPU_DIR=package_dir("torch_npu"),
            DSV4_EXTENSION=str(Path(self.get_ext_fullpath(EXTENSION)).resolve()),
        )

    def copy_extensions_to_source(self) -> None:
        put_extension(BUILD_DIR, Path(self.get_finalized_command("build_py").get_package_dir("dsv4_npu_ops")))
        super().copy_extensions_to_source()  # the NPU library too


def put_extension(build_dir: Path, package: Path) -> None:
    """Copies the extension, and what says for which torch it is, into a package.

    Earlier builds go first: running processes keep theirs, and one with the tag of an interpreter in its name would win
    the import.
    """
    package.mkdir(parents=True, exist_ok=True)
    for earlier in package.glob("_C.*.so"):
        earlier.unlink()
    for name in ("_C.abi3.so", "_built_for.py"):
        shutil.copy2(build_dir / name, package)


def run_cmake(source: Path, suffix: str, generator: str, target: str, **variables: str) -> Path:
    """Builds one target of a CMake project; returns the folder of its build."""
    build_dir = BUILD_DIR.with_name(f"{BUILD_DIR.name}{suffix}")
    build_dir.mkdir(parents=True, exist_ok=True)
    variables |= {
        "DSV4_TORCH_DIR": str(torch_dir()),
        "CMAKE_BUILD_TYPE": os.environ.get("CMAKE_BUILD_TYPE", "Release"),
    }
    configure = ["cmake", "-S", str(source), "-B", str(build_dir), "-G", generator]
    run([*configure, *(f"-D{key}={value}" for key, value in variables.items())])
    run(["cmake", "--build", str(build_dir), "--target", target, "-j", os.environ.get("MAX_JOBS", "2")])
    return build_dir


def run(command: list[str]) -> None:
    """Runs a build tool; those of the building Python come before the system's, activated or not."""
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', '')}"
    if shutil.which("cmake", path=path) is None:
        raise SystemExit("cmake is not installed, expected it beside setuptools: pip install cmake ninja")
    if subprocess.run(command, env={**os.environ, "PATH": path}, check=False).returncode:
        raise SystemExit(f"failed: {' '.join(command)}; its messages are above")


def cann_home() -> str:
    """Folder of the CANN toolkit."""
    folder = os.environ.get("ASCEND_HOME_PATH", "")
    if not Path(folder, "include").is_dir():
        raise SystemExit(
            f"ASCEND_HOME_PATH is {folder!r}, expected the folder of a CANN toolkit because DSV4_SOC_VERSION is "
            f"{SOC_VERSION!r}: source the toolkit's set_env.sh"
        )
    return folder


def find_package_dir(name: str) -> str | None:
    """Folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent)


def package_dir(name: str) -> str:
    """The same for a package that the NPU library needs."""
    found = find_package_dir(name)
    if found is None:
        raise SystemExit(
            f"{name} is not installed, expected it because DSV4_SOC_VERSION is {SOC_VERSION!r}: install it, and build "
            "with --no-build-isolation"
        )
    return found


def torch_dir() -> Path:
    """Folder of the torch that is built against."""
    folder = os.environ.get("DSV4_TORCH_DIR") or find_package_dir("torch")
    if folder is None:
        raise SystemExit(
            f"torch is not installed in the Python that builds dsv4_npu_ops, expected torch {SUPPORTED}: install the "
            "one that your engine uses, and build with pip's option --no-build-isolation (docs/install.md)"
        )
    return Path(folder).resolve()


def torch_release() -> str:
    """Minor release of that torch, as in 2.10. Binaries for one serve no other."""
    version_file = torch_dir() / "version.py"
    found = re.search(r"^__version__ = '((\d+)\.(\d+)[^']*)'", version_file.read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{version_file} names no version, expected that of a torch package")
    release = (int(found[2]), int(found[3]))
    if release < OLDEST_TORCH:
        raise SystemExit(f"torch {found[1]} is installed at {torch_dir()}, expected torch {SUPPORTED}")
    if release > NEWEST_TORCH:
        print(f"dsv4_npu_ops was never built with torch {found[1]}, only with torch {SUPPORTED}", file=sys.stderr)
    return f"{release[0]}.{release[1]}"


def version_and_torch() -> tuple[str, str]:
    """Version of the distribution, and what it says that it depends on."""
    (version,) = re.findall(r"^project\(dsv4_npu_ops VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)
    # Sources are of no torch yet. Anything else needs one, also the metadata of a wheel to be built: with a range there
    # pip would fetch gigabytes.
    if {"sdist", "egg_info"} & set(sys.argv):
        return version, f"torch>={OLDEST_TORCH[0]}.{OLDEST_TORCH[1]},<{NEWEST_TORCH[0]}.{NEWEST_TORCH[1] + 1}"
    release = torch_release()
    return f"{version}+torch{release}", f"torch=={release}.*"


extensions = [Extension(EXTENSION, sources=[], py_limited_api=True)]
if SOC_VERSION:
    extensions.append(Extension(NPU_LIBRARY, sources=[]))

version, torch_requirement = version_and_torch()
setup(
    version=version,
    install_requires=[torch_requirement],
    ext_modules=extensions,
    cmdclass={"build_ext": CMakeBuild},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)

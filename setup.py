"""Builds the C++ part with CMake; everything else is declared in pyproject.toml.

Without DSV4_SOC_VERSION the package is for CPUs and needs neither torch_npu nor a CANN toolkit. With it, as in
DSV4_SOC_VERSION=ascend910_9391, the NPU library is built too (docs/npu.md): it needs torch_npu in the building
environment and a toolkit at ASCEND_HOME_PATH.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
EXTENSION = "dsv4_npu_ops._C"
NPU_LIBRARY = "dsv4_npu_ops.libdsv4_npu"
BUILD_DIR = Path(os.environ.get("DSV4_BUILD_DIR", ROOT / "build" / "cmake")).resolve()
SOC_VERSION = os.environ.get("DSV4_SOC_VERSION", "").lower()


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
            self.run_cmake(ROOT, "", "Ninja", "_C", target, Python_EXECUTABLE=sys.executable)
            return
        self.run_cmake(
            ROOT / "cmake" / "npu",
            "_npu",
            "Unix Makefiles",  # the toolkit's kernel project expects them
            "dsv4_npu",
            target,
            DSV4_SOC_VERSION=SOC_VERSION,
            DSV4_CANN_HOME=cann_home(),
            DSV4_TORCH_DIR=package_dir("torch"),
            DSV4_TORCH_NPU_DIR=package_dir("torch_npu"),
            DSV4_EXTENSION=str(Path(self.get_ext_fullpath(EXTENSION)).resolve()),
        )

    def run_cmake(self, source: Path, suffix: str, generator: str, name: str, target: Path, **variables: str) -> None:
        build_dir = BUILD_DIR.with_name(f"{BUILD_DIR.name}{suffix}")
        build_dir.mkdir(parents=True, exist_ok=True)
        variables |= {
            "DSV4_OUTPUT_DIR": str(target.parent),
            "CMAKE_BUILD_TYPE": os.environ.get("CMAKE_BUILD_TYPE", "Release"),
        }
        configure = ["cmake", "-S", str(source), "-B", str(build_dir), "-G", generator]
        subprocess.run([*configure, *(f"-D{key}={value}" for key, value in variables.items())], check=True)
        build = ["cmake", "--build", str(build_dir), "--target", name, "-j", os.environ.get("MAX_JOBS", "2")]
        subprocess.run(build, check=True)


def cann_home() -> str:
    """Folder of the CANN toolkit."""
    folder = os.environ.get("ASCEND_HOME_PATH", "")
    if not Path(folder, "include").is_dir():
        raise SystemExit(
            f"ASCEND_HOME_PATH is {folder!r}, expected the folder of a CANN toolkit because DSV4_SOC_VERSION is "
            f"{SOC_VERSION!r}: source the toolkit's set_env.sh"
        )
    return folder


def package_dir(name: str) -> str:
    """Folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(
            f"{name} is not installed, expected it because DSV4_SOC_VERSION is {SOC_VERSION!r}: install it, and build "
            "with --no-build-isolation"
        )
    return str(Path(spec.origin).parent)


extensions = [Extension(EXTENSION, sources=[])]
if SOC_VERSION:
    extensions.append(Extension(NPU_LIBRARY, sources=[]))

setup(ext_modules=extensions, cmdclass={"build_ext": CMakeBuild})

"""Stand-ins for NVIDIA's libraries, with small libraries in place of torch's."""

import ctypes
import subprocess
from pathlib import Path

import pytest
from other_torch.cuda_stand_ins import make_stand_ins

TORCH = """
long cudaGetDeviceCount(void);
long ncclGetVersion(void);
long cuOfTorch(void);
long ask(void) { return cudaGetDeviceCount() * 10000 + ncclGetVersion() * 10 + cuOfTorch(); }
"""


def link(library: Path, source: str, *options: str) -> None:
    command = ["cc", "-shared", "-fPIC", "-o", str(library), "-xc", "-", "-xnone", f"-Wl,-soname,{library.name}"]
    subprocess.run([*command, *options], input=source, text=True, check=True)


@pytest.fixture
def torch_lib(tmp_path: Path) -> Path:
    """A folder of libraries that were linked with NVIDIA's and are not beside them."""
    nvidia, folder = tmp_path / "nvidia", tmp_path / "lib"
    nvidia.mkdir()
    folder.mkdir()
    versions = nvidia / "versions.map"
    versions.write_text("libcudart.so.12 { global: *; };\n")
    script = f"-Wl,--version-script={versions}"
    link(nvidia / "libcudart.so.12", "long cudaGetDeviceCount(void) { return 1; }\n", script)
    link(nvidia / "libnccl.so.2", "long ncclGetVersion(void) { return 1; }\n")
    link(folder / "libc10_cuda.so", "long cuOfTorch(void) { return 7; }\n")
    needs = [str(nvidia / "libcudart.so.12"), str(nvidia / "libnccl.so.2"), str(folder / "libc10_cuda.so")]
    link(folder / "libtorch_cuda.so", TORCH, "-Wl,-rpath,$ORIGIN", *needs)
    return folder


def test_what_torch_loads_is_there_and_finds_no_device(torch_lib: Path) -> None:
    with pytest.raises(OSError, match="libcudart"):
        ctypes.CDLL(str(torch_lib / "libtorch_cuda.so"))
    assert make_stand_ins(torch_lib) == ["libcudart.so.12", "libnccl.so.2"]
    assert ctypes.CDLL(str(torch_lib / "libtorch_cuda.so")).ask() == 100 * 10000 + 100 * 10 + 7
    assert make_stand_ins(torch_lib) == []


def test_a_cpu_build_gets_none(tmp_path: Path) -> None:
    link(tmp_path / "libtorch_cpu.so", "long own(void) { return 1; }\n")
    assert make_stand_ins(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["libtorch_cpu.so"]

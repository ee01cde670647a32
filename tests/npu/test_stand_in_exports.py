"""What the torch_npu wheel wants from CANN, compared with what the stand-in libraries have."""

import functools
import re
import subprocess

import npu_sim
import pytest
import torch

WANTED = re.compile(r"acl|rt[A-Z]|Msprof|Hccl|tdt[A-Z]|_ZNK?2ge")


@functools.cache
def symbols(library, *, defined: bool) -> frozenset[str]:
    arguments = ["nm", "-D", "--defined-only" if defined else "--undefined-only", str(library)]
    listing = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    return frozenset(line.split()[-1].split("@")[0] for line in listing.splitlines())


def exported() -> frozenset[str]:
    return symbols(npu_sim.build_dir() / "libascend_device_sim.so", defined=True)


def wheel_libraries():
    package = npu_sim.torch_npu_dir() / "torch_npu"
    return [package / "lib" / name for name in ("libtorch_npu.so", "libtensorpipe.so", "libnpu_profiler.so")] + list(
        package.glob("_C*.so")
    )


@pytest.mark.parametrize("library", wheel_libraries(), ids=lambda path: path.name)
def test_every_function_that_the_wheel_links_exists(library):
    own = set().union(*(symbols(other, defined=True) for other in wheel_libraries()))
    wanted = {name for name in symbols(library, defined=False) if WANTED.match(name)} - own
    missing = sorted(wanted - exported())
    assert not missing, f"{library.name} wants {len(missing)} functions that the stand-in lacks: {missing}"


@functools.cache
def file_bytes(library) -> bytes:
    return library.read_bytes()


# Looked up by name when first needed; torch_npu works without those that are not here.
BY_NAME = """
    aclGetRecentErrMsg aclmdlRICaptureBegin aclmdlRICaptureEnd aclmdlRICaptureGetInfo aclmdlRIDestroy
    aclmdlRIExecuteAsync aclmdlRIGetId aclrtCtxSetSysParamOpt aclrtDestroyStreamForce aclrtGetDeviceInfo
    aclrtGetPrimaryCtxState aclrtGetSysParamOpt aclrtQueryEventStatus aclrtSetDeviceSatMode aclrtSetOpExecuteTimeOut
    aclrtSetStreamAttribute aclrtStreamQuery aclrtSynchronizeDeviceWithTimeout aclrtSynchronizeStreamWithTimeout
    aclsysGetCANNVersion
""".split()
if torch.__version__.startswith("2.10."):
    BY_NAME = [name for name in BY_NAME if name not in ("aclmdlRIGetId", "aclrtGetSysParamOpt")]


@pytest.mark.parametrize("name", BY_NAME)
def test_functions_looked_up_by_name_exist_on_both_sides(name):
    wheel = npu_sim.torch_npu_dir() / "torch_npu" / "lib" / "libtorch_npu.so"
    assert name.encode() in file_bytes(wheel), f"this torch_npu no longer looks up {name}"
    assert name in exported()


def test_a_function_that_is_only_there_to_load_fails_and_is_recorded(sim):
    import ctypes

    library = ctypes.CDLL("libascendcl.so")
    assert library.aclrtUnmapMem(None) == 200001
    assert sim.counters()["refused.aclrtUnmapMem"] == 1
    assert "aclrtUnmapMem: not implemented" in sim.errors()[0]
    sim.reset_errors()

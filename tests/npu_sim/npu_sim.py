"""Runs the real, unmodified torch_npu on the simulated Ascend device.

One process loads it once and for all: torch_npu patches torch. Nothing here has been compared with hardware.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import json
import os
import sys
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[2]
_SIMULATOR = "libascend_device_sim.so"
_KERNEL_BRIDGE = "libascend_kernel_bridge.so"
_KERNEL_SIMULATOR = "ascend_sim/libascend_sim.so"
_CUDA_SETTINGS = "libcuda_settings.so"  # where torch is a CUDA build
_STAND_INS = (
    "libascendcl.so",
    "libhccl.so",
    "libacl_op_compiler.so",
    "libge_runner.so",
    "libgraph.so",
    "libacl_tdt_channel.so",
    "libopapi.so",
)


def build_dir() -> Path:
    """Folder of the built stand-in libraries: $NPU_SIM_BUILD_DIR, or build/npu_sim of the checkout."""
    return Path(os.environ.get("NPU_SIM_BUILD_DIR", _REPOSITORY / "build" / "npu_sim"))


def torch_npu_dir() -> Path:
    """Folder that holds the torch_npu package: $NPU_SIM_TORCH_NPU_DIR, or build/torch_npu of the checkout."""
    return Path(os.environ.get("NPU_SIM_TORCH_NPU_DIR", _REPOSITORY / "build" / "torch_npu"))


class Mode(enum.IntEnum):
    """When the simulated device runs what streams hold."""

    LAZY = 0  # only when a host call has to wait for it
    ASYNCHRONOUS = 1  # at once, on a thread for each stream
    SYNCHRONOUS = 2  # before the enqueuing call returns


class ReplayOrder(enum.IntEnum):
    """Order in which a graph replay runs nodes that no edge orders."""

    AS_CAPTURED = 0
    LATEST_FIRST = 1


class DeviceSim:
    """Counters, errors and modes of the simulated device. Get it from `load()`."""

    devices = 2
    vector_cores = 40
    poison = 0xA5  # every byte of fresh device and page-locked host memory

    def __init__(self, library: ctypes.CDLL, kernels: ctypes.CDLL) -> None:
        self._library = library
        self.kernels = kernels  # C API of the Ascend C simulator (tests/ascend_sim), whose errors are kernel mistakes
        kernels.ascend_sim_errors_json.restype = ctypes.c_char_p
        kernels.ascend_sim_counters_json.restype = ctypes.c_char_p
        library.ascend_device_sim_counters.restype = ctypes.c_char_p
        library.ascend_device_sim_errors.restype = ctypes.c_char_p
        library.ascend_device_sim_host_alias.restype = ctypes.c_void_p
        library.ascend_device_sim_host_alias.argtypes = [ctypes.c_void_p]
        library.ascend_device_sim_fail_launches.argtypes = [ctypes.c_char_p, ctypes.c_int32, ctypes.c_uint32]

    def set_mode(self, mode: Mode) -> None:
        """Runs everything that is pending, then switches."""
        if self._library.ascend_device_sim_set_mode(int(mode)) != 0:
            raise ValueError(f"mode: got {mode!r}, expected a Mode")

    def mode(self) -> Mode:
        return Mode(self._library.ascend_device_sim_mode())

    def set_replay_order(self, order: ReplayOrder) -> None:
        if self._library.ascend_device_sim_set_replay_order(int(order)) != 0:
            raise ValueError(f"order: got {order!r}, expected a ReplayOrder")

    def fail_launches(self, kernel: str, error: int, count: int = 1) -> None:
        """Makes the next `count` launches of `kernel` ("" for any) return the ACL error code."""
        self._library.ascend_device_sim_fail_launches(kernel.encode(), error, count)

    def counters(self) -> dict[str, int]:
        """Everything counted since the last reset, by name. Names that are absent count 0.

        launch.K, captured_launch.K, run.K   kernel launches (eager, into a graph) and executions of kernel K
        copy.D.M, copy.D.M.bytes             copies; D is h2d, d2h, d2d or h2h; M is async, pageable, captured, blocking
        sync.stream, sync.event, sync.device host waits
        query.stream, query.event            questions that do not wait
        event.record, event.wait, replay, capture, malloc, free, malloc_host, memset
        operator.O                           attempts to run built-in operator O, which fail but for a fill of one int64
        refused.F                            calls of an ACL function F that the simulated device does not have
        """
        lines = self._library.ascend_device_sim_counters().decode().splitlines()
        return {name: int(value) for name, value in (line.split("\t") for line in lines)}

    def reset_counters(self) -> None:
        self._library.ascend_device_sim_reset_counters()

    def errors(self) -> list[str]:
        """Every error that an ACL call or a task met since the last reset, oldest first."""
        return self._library.ascend_device_sim_errors().decode().splitlines()

    def kernel_errors(self) -> list[dict[str, Any]]:
        """What the Ascend C simulator found in kernels since the last reset: kind, kernel, block, line, message ..."""
        return json.loads(self.kernels.ascend_sim_errors_json())

    def kernel_counters(self) -> list[dict[str, Any]]:
        """What the Ascend C simulator counted in each execution of a kernel: kernel, blocks, bytes moved ..."""
        return json.loads(self.kernels.ascend_sim_counters_json())

    def reset_errors(self) -> None:
        """Forgets recorded errors, those of kernels too, and makes failed streams usable again."""
        self.kernels.ascend_sim_clear_errors()
        self._library.ascend_device_sim_reset_errors()

    def host_alias(self, device_address: int) -> int | None:
        """Host address of the bytes behind a device address. Orders nothing: wait for the streams first."""
        return self._library.ascend_device_sim_host_alias(device_address)

    def read_bytes(self, device_address: int, bytes_: int) -> bytes:
        """What device memory holds now, whatever streams still have to do. For tests that look behind torch's back."""
        alias = self.host_alias(device_address)
        if alias is None:
            raise ValueError(f"device_address: got {device_address:#x}, expected live device memory")
        return ctypes.string_at(alias, bytes_)


def kernel_library(name: str) -> ctypes.CDLL:
    """A library of simulated kernels below the build folder, for tests that call a launch function directly."""
    return ctypes.CDLL(str(build_dir() / name))


_loaded: DeviceSim | None = None

_PR_SET_TIMERSLACK = 29  # <linux/prctl.h>
_IDLE_POLL_NS = 5_000_000


def _let_idle_threads_sleep() -> None:
    """torch_npu's release threads, two a device, ask for new work after each microsecond of sleep and never stop.

    Together they use more of a core than the tests do. How late a sleep may end is what a thread inherits from the one
    that starts it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_IDLE_POLL_NS), 0, 0, 0)


def load() -> DeviceSim:
    """Loads the stand-in libraries and imports torch_npu. Later calls return the same object.

    Raises FileNotFoundError if the libraries or torch_npu are not set up.
    """
    global _loaded
    if _loaded is not None:
        return _loaded
    if not (torch_npu_dir() / "torch_npu").is_dir():
        raise FileNotFoundError(f"{torch_npu_dir()}: expected the torch_npu package; run setup_torch_npu.py")
    if not (build_dir() / _SIMULATOR).is_file():
        raise FileNotFoundError(f"{build_dir()}: expected {_SIMULATOR}; build tests/npu_sim with CMake")
    # With these set, torch_npu would look for the CANN that is not there.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    for name in ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_TOOLKIT_HOME"):
        os.environ.pop(name, None)
    # torch_npu finds libraries that the process holds by their SONAME; a changed LD_LIBRARY_PATH comes too late.
    simulator = ctypes.CDLL(str(build_dir() / _SIMULATOR), mode=ctypes.RTLD_GLOBAL)
    for name in _STAND_INS:
        ctypes.CDLL(str(build_dir() / name), mode=ctypes.RTLD_GLOBAL)
    # Before kernel libraries and the kernel simulator: of two definitions of a launch, the first loaded is used.
    ctypes.CDLL(str(build_dir() / _KERNEL_BRIDGE), mode=ctypes.RTLD_GLOBAL)
    kernels = ctypes.CDLL(str(build_dir() / _KERNEL_SIMULATOR), mode=ctypes.RTLD_GLOBAL)
    sys.path.append(str(torch_npu_dir()))
    # `import dsv4_npu_ops` loads it; a test may have named another.
    os.environ.setdefault("DSV4_NPU_LIBRARY", str(build_dir() / "project_ops" / "libdsv4_npu.so"))
    if (build_dir() / _CUDA_SETTINGS).is_file():
        import torch  # noqa: F401  which must have loaded its part for CUDA

        ctypes.CDLL(str(build_dir() / _CUDA_SETTINGS))
    with contextlib.redirect_stdout(sys.stderr):  # it prints a warning that there is no CANN
        import torch_npu  # noqa: F401

    _let_idle_threads_sleep()
    _loaded = DeviceSim(simulator, kernels)
    return _loaded

"""Loads the backend "ascend-sim" into this process: from then on, ops on CPU tensors run their simulated kernels."""

import ctypes
import json
import os
import warnings
from pathlib import Path
from typing import Any

import torch

import dsv4_npu_ops  # noqa: F401  (registers the ops that the backend overrides)

ROOT = Path(__file__).resolve().parents[2]
# An instrumented build (tests/sanitize) has a folder of its own.
BUILD = Path(os.environ.get("DSV4_BUILD_ROOT", ROOT / "build"))
LIBRARY = BUILD / "cmake" / "tests" / "ascend_backend" / "libdsv4_ascend_backend.so"
ERROR_LANE_WORDS = 8


class AscendSim:
    """Handle on the simulated device of this process.

    ``kernels`` names a library of other kernels for the same launches; one without its own gets the project's.
    """

    def __init__(self, kernels: Path | None = None) -> None:
        if not LIBRARY.exists():
            raise FileNotFoundError(f"{LIBRARY} is missing: `make build-sim` builds it")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kernels is not None:
                # Both libraries of kernels have one name, under which the backend finds the one already loaded.
                ctypes.CDLL(str(kernels), ctypes.RTLD_GLOBAL)
            torch.ops.load_library(str(LIBRARY))
        self._library = ctypes.CDLL(str(LIBRARY))
        self._library.dsv4_sim_error_words.restype = ctypes.POINTER(ctypes.c_int32)
        self._library.ascend_sim_counters_json.restype = ctypes.c_char_p
        self._library.ascend_sim_set_seed.argtypes = [ctypes.c_uint64]
        self._library.dsv4_sim_force_blocks.argtypes = [ctypes.c_int64]
        self._library.dsv4_sim_set_cores.argtypes = [ctypes.c_int64]

    def force_blocks(self, blocks: int) -> None:
        """Blocks of every launch; 0 leaves the number to the op."""
        self._library.dsv4_sim_force_blocks(blocks)

    def set_cores(self, cores: int) -> None:
        """Vector cores that the device reports; 0 for the default."""
        self._library.dsv4_sim_set_cores(cores)

    def set_seed(self, seed: int) -> None:
        """Seed of the block order and of the poison in UB."""
        self._library.ascend_sim_set_seed(seed)

    def keep_code_times(self, keep: bool) -> None:
        """Whether the counters of a block say how long it is at each basic block (``code_cycles``)."""
        self._library.ascend_sim_keep_code_times(int(keep))

    def take_errors(self) -> list[list[int]]:
        """The non-zero lanes of the device's error words; clears them."""
        words = self._library.dsv4_sim_error_words()
        lanes = [[words[lane * ERROR_LANE_WORDS + i] for i in range(ERROR_LANE_WORDS)] for lane in range(64)]
        for index in range(64 * ERROR_LANE_WORDS):
            words[index] = 0
        return [lane for lane in lanes if any(lane)]

    def take_counters(self) -> list[dict[str, Any]]:
        """Counters of every launch since the last call."""
        counters = json.loads(self._library.ascend_sim_counters_json())
        self._library.ascend_sim_clear_counters()
        return counters

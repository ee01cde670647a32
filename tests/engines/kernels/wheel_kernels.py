"""vLLM-Ascend's own device kernels, compiled from the sources in its wheel for the device simulator."""

import os
import re
from pathlib import Path

import numpy as np
from ascend_sim.simulator import KernelError, SimulatedError, Simulator, build

from engines.wheels import WHEELS

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("DSV4_BUILD_ROOT", ROOT / "build"))
SOURCES = "vllm_ascend/_cann_ops_custom/vendors/custom_transformer/op_impl/ai_core/tbe/custom_transformer_impl/ascendc"


def _without(text: str, folder: Path, copy: Path) -> Path:
    copy.mkdir(exist_ok=True)
    found = 0
    for source in [*folder.glob("*.h"), *folder.glob("*.cpp")]:
        old = source.read_text()
        found += old.count(text)
        new = old.replace(text, "")
        if not (copy / source.name).exists() or (copy / source.name).read_text() != new:
            (copy / source.name).write_text(new)
    assert found, text
    return copy


class WheelKernel:
    """One kernel of the wheel.

    ``tiling``: a header with its tiling struct, where the sources do not have it. ``without``: a text that is taken out
    of a copy of the sources.
    """

    def __init__(self, name: str, tiling: str = "", without: str = "") -> None:
        version = os.environ["VLLM_ASCEND_VERSION"]
        folder = WHEELS["vllm-ascend", version].unpacked() / SOURCES / name
        # The process keeps what it has loaded from a path, so that each change has one of its own.
        change = "-without-" + re.sub(r"\W", "", without) if without else ""
        build_dir = BUILD / "wheel_kernels" / f"{name}-{version}{change}"
        build_dir.mkdir(parents=True, exist_ok=True)
        if without:
            folder = _without(without, folder, build_dir / "sources")
        first = build_dir / "tiling.h"
        if not first.exists() or first.read_text() != tiling:
            first.write_text(tiling)
        self.name = name
        self.simulator = Simulator(
            build(
                [folder / f"{name}.cpp"],
                build_dir,
                [folder],
                include_first=[first],
                simulator_dir=BUILD / "ascend_sim",
            )
        )

    def run(
        self,
        arrays: list[np.ndarray],
        outputs: list[np.ndarray],
        tiling: np.ndarray,
        *,
        key: int,
        blocks: int,
        profile: str = "cann",
    ) -> list[SimulatedError]:
        """Launch with the arrays as arguments, a workspace and the tiling struct behind them.

        Args:
            arrays: arguments, among them the outputs.
            outputs: those that count as unwritten before.

        Returns:
            What the simulator found, warnings not among it.
        """
        simulator = self.simulator
        simulator.clear_memory()
        simulator.configure(profile=profile, tiling_key=key)
        for i, array in enumerate(arrays):
            output = any(array is one for one in outputs)
            simulator.register(array.ctypes.data, array.nbytes, f"argument {i}", initialised=not output)
        simulator.register(tiling.ctypes.data, tiling.nbytes, "tiling")
        try:
            simulator.run(self.name, blocks, *(array.ctypes.data for array in arrays), 0, tiling.ctypes.data)
        except KernelError as error:
            return error.errors
        return []

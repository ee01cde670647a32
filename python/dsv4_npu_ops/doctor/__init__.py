"""What is installed, which functions of engines are replaced, and whether the ops give the right values here."""

from __future__ import annotations

import importlib
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from dsv4_npu_ops import npu_library
from dsv4_npu_ops._built_for import TORCH_RELEASE
from dsv4_npu_ops.doctor.checks import CHECKS
from dsv4_npu_ops.engines.settings import Mode, mode_of, variable_of

_PACKAGES = ("dsv4_npu_ops", "torch", "torch_npu", "transformers", "sglang", "vllm", "vllm-ascend")
_ENGINES = {"sglang": "sglang", "vllm_ascend": "vllm-ascend"}
"""Distribution of each engine that has a plug-in, by the plug-in's name."""


def report(device: str | None = None) -> int:
    """Prints the report.

    Args:
        device: where the ops are tried; None: an NPU if ops can run on one, else the CPU.

    Returns:
        1 if an op gave wrong values or raised, else 0.

    Source: docs/engines.md.
    """
    print("Installed")
    for package in _PACKAGES:
        print(f"  {package:14} {_version(package)}")
    print(f"  {'CANN':14} {_cann()}")
    print(f"  {'NPU':14} {_npu()}")
    print(f"  {'built for':14} torch {TORCH_RELEASE}")
    for engine, distribution in _ENGINES.items():
        print(f"\n{engine}")
        for line in _hooks(engine, distribution):
            print(f"  {line}")
    chosen = device or ("npu" if npu_library.is_loaded() else "cpu")
    print(f"\nOps on {chosen}")
    try:
        torch.empty(1, device=chosen)
    except Exception as error:  # a device that is not there is no wrong value
        print(f"  not tried: {type(error).__name__}: {str(error).splitlines()[0]}")
        return 1
    failed = 0
    for name, check in CHECKS.items():
        try:
            fault = check(torch.device(chosen))
        except Exception as error:  # whatever an op or a device raises is what the reader wants to see
            fault = f"{type(error).__name__}: {error}"
        failed += fault is not None
        print(f"  {name:20} {'right' if fault is None else f'WRONG: {fault}'}")
    return 1 if failed else 0


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cann() -> str:
    """The toolkit's own word for its version, where its environment is set."""
    for variable in ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"):
        home = os.environ.get(variable)
        if not home:
            continue
        for file in ("compiler/version.info", "runtime/version.info", "version.cfg"):
            path = Path(home, file)
            if path.is_file():
                return f"{path.read_text().strip().splitlines()[0]} ({path})"
        return f"in {home}, without a version file"
    return "no ASCEND_TOOLKIT_HOME or ASCEND_HOME_PATH"


def _npu() -> str:
    if npu_library.is_loaded():
        return str(torch.get_device_module("npu").get_device_name())
    try:
        npu_library.require_npu("dsv4_npu_ops")
    except RuntimeError as reason:
        return f"none: {str(reason).partition(' needs an NPU, and ')[2]}"
    return "found"


def _hooks(engine: str, distribution: str) -> list[str]:
    """One line a function that the plug-in knows."""
    try:
        mode = mode_of(engine)
    except ValueError as fault:
        return [str(fault)]
    if _version(distribution) == "not installed":
        return ["not installed"]
    lines = [f"{variable_of(engine)} is {mode.value}"]
    try:
        decisions = importlib.import_module(f"dsv4_npu_ops.engines.{engine}").decisions()
    except Exception as error:  # an engine's modules may need a device, or anything else
        return [*lines, f"cannot be looked at here: {type(error).__name__}: {error}"]
    for decision in decisions:
        state = mode.value if decision.refused is None else f"the engine's own: {decision.refused}"
        if decision.refused is None and mode is Mode.SHADOW and decision.hook.shadow is None:
            state = "the engine's own in shadow runs"
        lines.append(f"{decision.hook.name:60} {state}")
    return lines

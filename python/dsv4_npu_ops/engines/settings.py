"""What an engine's plug-in is asked to do, by an environment variable each."""

from __future__ import annotations

import os
from enum import Enum


class Mode(Enum):
    """What a plug-in does with the functions that it knows."""

    OFF = "off"
    ON = "on"
    SHADOW = "shadow"


def mode_of(engine: str) -> Mode:
    """The mode of an engine's plug-in: ``DSV4_NPU_OPS_SGLANG`` for ``sglang``; on where it is not set or empty.

    Raises:
        ValueError: another value.
    """
    name = variable_of(engine)
    given = os.environ.get(name) or Mode.ON.value
    try:
        return Mode(given.lower())
    except ValueError:
        modes = ", ".join(mode.value for mode in Mode)
        raise ValueError(f"{name} is {given!r}, expected one of {modes}") from None


def variable_of(engine: str) -> str:
    """Name of the environment variable of an engine's mode."""
    return f"DSV4_NPU_OPS_{engine.upper()}"


def dump_folder() -> str:
    """Where a shadow run saves its first difference: ``DSV4_NPU_OPS_DUMP``, or ``dsv4_npu_ops_differences``."""
    return os.environ.get("DSV4_NPU_OPS_DUMP") or "dsv4_npu_ops_differences"

"""An engine's results beside ours, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import say_once
from dsv4_npu_ops.engines.settings import dump_folder
from dsv4_npu_ops.launch_dump import dump_launches, on_host

Tensors = Mapping[str, Tensor | None]


def compare(
    engine: str,
    function: str,
    theirs: Tensors,
    ours: Tensors,
    again: Callable[[], object],
    live: Mapping[str, Tensor] | None = None,
) -> bool:
    """Says once that a function of an engine's gave something else, and saves the launch; one wait for the device.

    Gives whether all was equal.

    Args:
        engine: the engine's name.
        function: that of the function, for the message.
        theirs, ours: results by name; None for one that is not there.
        again: repeats the launch that gave ours, to be saved for the replay tool.
        live: by name, which elements mean something; all of them where it is not given.
    """
    names = differing(theirs, ours, live or {})
    if not names:
        return True
    folder = Path(dump_folder()) / function
    message = f"{function} differs from {engine}'s in {', '.join(names)}"
    if folder.exists():
        say_once(f"{message}; {folder} holds an earlier difference")
        return False
    try:
        with dump_launches(folder):
            again()
        torch.save(on_host({name: theirs[name] for name in names}), folder / f"{engine.lower()}.pt")
    except (OSError, RuntimeError) as error:  # torch's own for a file that cannot be written is the latter
        say_once(f"{message}; not saved: {error}")
        return False
    say_once(f"{message}; saved in {folder} for tests/ascend_backend/replay.py")
    return False


def differing(theirs: Tensors, ours: Tensors, live: Mapping[str, Tensor]) -> list[str]:
    """Names of what differs where it means something."""
    names, flags = [], []
    for name, expected in theirs.items():
        given = ours[name]
        if expected is None or given is None or expected.shape != given.shape:
            if expected is not given:
                return [name]
            continue
        unequal = expected != given
        if name in live:
            unequal = unequal & live[name].to(unequal.device)
        names.append(name)
        flags.append(unequal.any())
    return [name for name, flag in zip(names, torch.stack(flags).tolist(), strict=True) if flag] if flags else []

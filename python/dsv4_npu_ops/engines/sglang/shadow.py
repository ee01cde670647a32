"""SGLang's results beside ours, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import say_once
from dsv4_npu_ops.engines.settings import dump_folder
from dsv4_npu_ops.launch_dump import dump_launches, on_host
from dsv4_npu_ops.layout import RequestTables

_TOKENS_OF_UNIT = {"full": 1, "swa": 1, "c4": 4, "c128": 128}

Tensors = Mapping[str, Tensor | None]


def compare(
    function: str,
    theirs: Tensors,
    ours: Tensors,
    again: Callable[[], object],
    live: Mapping[str, Tensor] | None = None,
) -> None:
    """Says once that a function of SGLang's gave something else, and saves the launch; one wait for the device.

    Args:
        function: its name, for the message.
        theirs, ours: results by name; None for one that is not there.
        again: repeats the launch that gave ours, to be saved for the replay tool.
        live: by name, which elements mean something; all of them where it is not given.
    """
    names = differing(theirs, ours, live or {})
    if not names:
        return
    folder = Path(dump_folder()) / function
    message = f"{function} differs from SGLang's in {', '.join(names)}"
    if folder.exists():
        say_once(f"{message}; {folder} holds an earlier difference")
        return
    with dump_launches(folder):
        again()
    torch.save(on_host({name: theirs[name] for name in names}), folder / "sglang.pt")
    say_once(f"{message}; saved in {folder} for tests/ascend_backend/replay.py")


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


def live_pages(tables: RequestTables, page_tables: Tensors, starts: Tensor, finals: Tensor) -> dict[str, Tensor]:
    """``[B, columns]`` for each page table, by its name: whether the column holds a page that attention reads.

    Args:
        starts, finals: host lengths of the rows before and with the step; a row without tokens is padding.
    """
    masks = {}
    for name, table in page_tables.items():
        if table is None or not name.endswith("_page_table"):
            continue
        pool = name.removesuffix("_page_table")
        page = tables.page_size_of(pool) * _TOKENS_OF_UNIT[pool]
        end = finals.long() // _TOKENS_OF_UNIT[pool] * _TOKENS_OF_UNIT[pool]
        first = (starts.long() - tables.sliding_window + 1).clamp(min=0) if pool == "swa" else torch.zeros_like(end)
        columns = torch.arange(table.shape[1]) * page
        masks[name] = (columns < end[:, None]) & (columns + page > first[:, None]) & (finals > starts)[:, None]
    return masks

"""Repeats calls that dump_launches() saved, on the CPU and in the device simulator, and says where results differ.

    cd tests && python -m ascend_backend.replay <file.pt> ...

Three answers are compared bit by bit: the recorded one, the CPU's, and the simulated device's. If the recorded one
alone differs, the device or its toolkit does something that the simulator does not model.
"""

from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_flatten_with_path

import dsv4_npu_ops  # noqa: F401  (registers the ops)
from dsv4_npu_ops.launch_dump import FORMAT


def load(path: Path) -> dict[str, Any]:
    """A saved call.

    Raises:
        ValueError: a file of another format.
    """
    record = torch.load(path, weights_only=False)
    if record.get("format") != FORMAT:
        raise ValueError(f"{path} has format {record.get('format')}, expected {FORMAT}")
    return record


def repeat(record: dict[str, Any]) -> Any:
    """Calls the op again on copies of the saved arguments; returns them and the results, like the record's "after"."""
    args, kwargs = copy.deepcopy(record["before"])
    name = record["op"].partition("::")[2].partition(".")[0]
    op = getattr(getattr(torch.ops.dsv4_npu_ops, name), record["overload"] or "default")
    return args, kwargs, op(*args, **kwargs)


def differences(wanted: Any, got: Any) -> list[str]:
    """Where two calls' tensors differ, bit by bit, one line a tensor."""
    lines = []
    for (path, want), have in zip(tree_flatten_with_path(wanted)[0], tree_flatten(got)[0], strict=True):
        if not isinstance(want, torch.Tensor):
            continue
        want, have = want.contiguous().view(torch.uint8), have.contiguous().view(torch.uint8)
        unequal = (want != have).flatten().nonzero()
        if len(unequal):
            place = "".join(str(step) for step in path)
            lines.append(f"{place}: {len(unequal)} bytes differ, the first at byte {unequal[0].item()}")
    return lines


def repeat_on_cpu(record: dict[str, Any]) -> Any:
    """What the CPU answers; a message where it raises, because a device makes a bad row padding instead."""
    try:
        return repeat(record)
    except (ValueError, IndexError, RuntimeError) as error:
        return f"raised {type(error).__name__}: {error}"


def agrees(name: str, recorded: Any, answer: Any) -> bool:
    """Prints how an answer compares with the recorded one."""
    if isinstance(answer, str):
        print(f"  {name}: {answer}")
        return True
    lines = differences(recorded, answer)
    print(f"  {name}: {'agrees with the recorded call' if not lines else 'differs from the recorded call'}")
    print("".join(f"    {line}\n" for line in lines), end="")
    return not lines


def main(argv: list[str]) -> int:
    """Entry point; 0 when all three agree about every call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--blocks", type=int, default=0, help="blocks of the launches; default what the op asks for")
    options = parser.parse_args(argv)
    records = [load(path) for path in options.files]
    cpu = [repeat_on_cpu(record) for record in records]
    # From here on, ops on CPU tensors run in the simulator.
    from ascend_backend.backend import AscendSim

    device = AscendSim()
    device.force_blocks(options.blocks)
    agree = True
    for path, record, cpu_answer in zip(options.files, records, cpu, strict=True):
        print(f"{path}:")
        agree &= agrees("cpu", record["after"], cpu_answer)
        agree &= agrees("simulated", record["after"], repeat(record))
        for lane in device.take_errors():
            print(f"  simulated: error words {lane}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

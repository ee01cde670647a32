"""The three first measurements on an NPU, beside what the time model of docs/simulated_cost.md says of them.

    python bench/npu_first_measurements.py

1. A launch that does next to nothing, by blocks: launch cost, on which the number of blocks of every op rests.
2. The scan of 256 rows: what the vector unit takes for a chain of short instructions.
3. A page table at a capacity of a million tokens: stores of 32 KB from one area.

Each is captured as a graph of many launches, whose replay takes the host out of the time. DSV4_BLOCKS sets the blocks
of every launch of a process; each number of blocks is a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch_step import committed_lengths, filled_tables

import dsv4_npu_ops
from dsv4_npu_ops import Step, StepRows

MODEL = Path(__file__).with_suffix(".json")
"""What the time model says; written by model_times.py."""
LAUNCHES, REPLAYS = 100, 20
LENGTH, MILLION = 8192, 1 << 20
# Name: (blocks, 0 for the op's own number; rows; field; capacity).
CASES = {
    **{f"8 rows on {blocks} blocks": (blocks, 8, "start_pos", LENGTH) for blocks in (1, 8, 16, 24, 40)},
    "scan of 256 rows": (1, 256, "start_pos", LENGTH),
    "page table of 64 rows, 1 M": (0, 64, "swa_page_table", MILLION),
}


def launch(device: str, rows: int, field: str, capacity: int) -> Callable[[], object]:
    """A step that gives one field."""
    with torch.device(device):
        tables = filled_tables(rows, LENGTH)
    requests, starts = (tensor.to(device) for tensor in committed_lengths(rows, LENGTH - 4))
    columns = capacity // tables.page_size_of("swa")
    shape = (rows,) if field == "start_pos" else (rows, columns)
    out = Step(**{field: torch.empty(shape, dtype=torch.int32, device=device)})
    return lambda: dsv4_npu_ops.build_step(tables, StepRows.verify(starts, 4), out, req_pool_indices=requests)


def microseconds(run: Callable[[], object]) -> float:
    """Of one launch, in a graph of many."""
    npu = torch.npu
    run()
    npu.synchronize()
    graph = npu.NPUGraph()
    with npu.graph(graph):
        for _ in range(LAUNCHES):
            run()
    graph.replay()
    begin, end = npu.Event(enable_timing=True), npu.Event(enable_timing=True)
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    npu.synchronize()
    return 1e3 * begin.elapsed_time(end) / (LAUNCHES * REPLAYS)


def measured(name: str) -> float:
    """In a process that has the case's number of blocks."""
    blocks = CASES[name][0]
    environment = dict(os.environ)
    if blocks:
        environment["DSV4_BLOCKS"] = str(blocks)
    command = [sys.executable, str(Path(__file__).resolve()), "--case", name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", help="measure one case in this process, and print its microseconds")
    arguments = parser.parse_args()
    import torch_npu  # noqa: F401

    if arguments.case:
        _, *shape = CASES[arguments.case]
        print(microseconds(launch("npu", *shape)))
        return
    model = json.loads(MODEL.read_text())
    print(f"{'one launch':32} {'measured us':>12} {'model us':>9}  ratio")
    found = {}
    for name in CASES:
        found[name] = measured(name)
        print(f"{name:32} {found[name]:12.1f} {model[name]:9.1f} {found[name] / model[name]:6.2f}")
    few, many = found["8 rows on 1 blocks"], found["8 rows on 40 blocks"]
    print(
        f"\nanother block takes {(many - few) / 39 * 1e3:.0f} ns, kBlockLaunchNs of csrc/common/launch_plan.h says 140"
    )
    print(
        "A ratio far from that of the others shows which constants of tests/ascend_sim/src/time_model.h are wrong: the"
    )
    print(
        "first five those of launches and cold caches, the next one kVectorHead and kVectorIssue, the last one kStore*."
    )


if __name__ == "__main__":
    main()

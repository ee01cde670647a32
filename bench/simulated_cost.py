"""What the device kernels move and do, counted in the device simulator, beside the obvious naive kernel of each op.

    python bench/simulated_cost.py [op ...]

Nothing here was measured on a device: bytes, accesses and calls are counted, cycles are those in which the simulator's
time model keeps a pipe busy (bench/model_times.py has times). Prints a table and writes artifacts/simulated_cost.json
and artifacts/simulated_cost.md.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.append(str(ROOT / "tests"))

from ascend_backend.backend import BUILD, AscendSim  # noqa: E402
from ascend_sim.instructions import load_table  # noqa: E402
from cost_cases import cases  # noqa: E402
from moved import WIDTH, CostCase  # noqa: E402
from step_cost_cases import step  # noqa: E402

OWN_KERNELS = BUILD / "cmake" / "tests" / "ascend_backend" / "libdsv4_sim_kernels.so"
NAIVE_KERNELS = BUILD / "cmake" / "bench" / "naive" / "libdsv4_sim_kernels.so"

MOST_TRAFFIC = 1.25
"""Bytes moved over bytes that must move."""
FINDING_BYTES = 512
"""What a block may read beyond that to find its share of a short list."""
MOST_LONG_TRAFFIC = 1.2
"""The same of a step at a million tokens, with every touched 32-byte block counted in full."""
MOST_SCALARS = 0.1
"""Scalar accesses to UB for each output element, beyond those for the rows."""
ROW_SCALARS, OWN_ROW_SCALARS = 14, 24
"""Scalar accesses to UB that a block may make for each row of the batch, to read its inputs and keep what the outputs
need, and for each row of its own share, to visit it once an output or pool."""
SCANNED_BY_VECTORS = ("compressor_metadata", "write_req_tables")
"""Ops whose blocks make no scalar access for the rows of others."""
MOST_IMBALANCE = 0.1
MOST_IMBALANCE_OF = {"compressor_metadata": 0.2}
"""Of ops with few rows a share, which are cut at 8 of them so that no two blocks write to one 32-byte piece."""
MOST_LATE = 0.2
SHARED_BY_TIME = ("step",)
"""Ops whose blocks do different work: they end at nearly one time, whatever each of them moves."""
LARGE_BLOCKS = 24
"""Work is large when it takes all cores of the simulated device."""


@dataclass(frozen=True)
class Cost:
    """Counters of one launch; see the README of the simulator for what they mean.

    ``traffic`` leaves out the copies of the row inputs, ``copies_kb``, that blocks beyond the first make, and so does
    ``blocks_traffic``, which counts every touched 32-byte block of global memory in full. ``imbalance`` is how much
    less than the busiest block the idlest one moves, ``late`` by how much of the last block's time the mean one ends
    before it, by the time model.
    """

    op: str
    shape: str
    blocks: int
    launches: int
    must_kb: float
    traffic: float
    blocks_traffic: float
    copies_kb: float
    scalars_per_element: float
    scalars_per_row_and_block: float
    scalars_beyond_rows: float
    gm_scalars_per_element: float
    imbalance: float
    late: float
    large: bool
    copy_calls: int
    ub_peak_kb: float
    cycles: dict[str, float]
    digest: str


def cost_of(case: CostCase, device: AscendSim) -> Cost:
    """Runs a case once."""
    device.take_counters()
    moved = case.run()
    launches = device.take_counters()
    counters = launches[-1]
    blocks, per_block = counters["blocks"], counters["per_block"]
    scalars = counters["ub_scalar_reads"] + counters["ub_scalar_writes"]
    must = moved.read_bytes + moved.written_bytes + moved.row_bytes
    copies = moved.row_bytes * (blocks - 1)
    total = sum(part["read_bytes"] + part["written_bytes"] for part in counters["traffic"].values())
    row_scalars = 0 if case.op in SCANNED_BY_VECTORS else ROW_SCALARS
    for_rows = row_scalars * blocks * case.rows + OWN_ROW_SCALARS * (case.rows + blocks)
    by_bytes = [block["mte2_bytes"] + block["mte3_bytes"] for block in per_block]
    by_time = [block["model_cycles"]["end"] for block in per_block]
    return Cost(
        op=case.op,
        shape=case.shape,
        blocks=blocks,
        launches=len(launches),
        must_kb=must / 1024,
        traffic=(total - copies) / must,
        blocks_traffic=(sum(part["block_bytes"] for part in counters["traffic"].values()) - copies) / must,
        copies_kb=copies / 1024,
        scalars_per_element=scalars / moved.elements,
        scalars_per_row_and_block=scalars / (blocks * case.rows) if case.rows else 0.0,
        scalars_beyond_rows=max(0, scalars - for_rows) / moved.elements,
        gm_scalars_per_element=(counters["gm_scalar_reads"] + counters["gm_scalar_writes"]) / moved.elements,
        imbalance=1 - min(by_bytes) / max(by_bytes),
        late=1 - sum(by_time) / blocks / max(by_time),
        large=blocks >= LARGE_BLOCKS,
        copy_calls=counters["mte2_calls"] + counters["mte3_calls"],
        ub_peak_kb=max(block["ub_peak_bytes"] for block in per_block) / 1024,
        cycles={pipe: max(block["model_cycles"][pipe] for block in per_block) for pipe in ("S", "V", "MTE2", "MTE3")},
        digest=_digest(moved.outputs),
    )


def breaches(cost: Cost) -> list[str]:
    """Limits that a launch of our own kernels exceeds."""
    found = []
    if cost.launches != 1:
        found.append(f"{cost.launches} launches, expected 1")
    if cost.traffic > MOST_TRAFFIC + FINDING_BYTES * cost.blocks / 1024 / cost.must_kb:
        found.append(f"moves {cost.traffic:.2f} times what it must, expected at most {MOST_TRAFFIC}")
    if cost.scalars_beyond_rows > MOST_SCALARS:
        found.append(f"{cost.scalars_beyond_rows:.2f} scalar accesses an element, expected at most {MOST_SCALARS}")
    if cost.large and cost.op in SHARED_BY_TIME and cost.late > MOST_LATE:
        found.append(f"the mean block ends {cost.late:.0%} before the last one, expected at most {MOST_LATE:.0%}")
    most_imbalance = MOST_IMBALANCE_OF.get(cost.op, MOST_IMBALANCE)
    if cost.large and cost.op not in SHARED_BY_TIME and cost.imbalance > most_imbalance:
        found.append(f"blocks differ by {cost.imbalance:.0%}, expected at most {most_imbalance:.0%}")
    return [f"{cost.op} {cost.shape}: {what}" for what in found]


def long_steps(device: AscendSim) -> dict[str, Cost]:
    """A verify step at a million tokens over tables of pages, and over tables of slots as they were before."""
    found = {}
    for kind in ("pages", "slots"):
        torch.manual_seed(0)
        found[kind] = cost_of(step(16, "all", "verify", WIDTH, 1 << 20, kind), device)
    return found


def naive_costs(ops: Iterable[str], small: bool = False) -> list[Cost]:
    """The same cases on the naive kernels, in a process of their own."""
    command = [sys.executable, str(HERE / "simulated_cost.py"), "--naive-json", *(["--small"] if small else []), *ops]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the naive kernels failed:\n{done.stderr}")
    return [Cost(**cost) for cost in json.loads(done.stdout)]


def run_cases(ops: Iterable[str], device: AscendSim, small: bool = False, naive: bool = False) -> list[Cost]:
    """Costs of the chosen ops' cases, in order."""
    count_instructions(*((NAIVE_KERNELS, HERE) if naive else (OWN_KERNELS, ROOT / "csrc")))
    return [cost_of(case, device) for case in cases(small, ops)]


@cache
def count_instructions(kernels: Path, sources: Path) -> None:
    """Makes the time model count the kernels' own instructions."""
    load_table(kernels, "aclrtlaunch_rope_gather", sources)


def _digest(outputs: Iterable[torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in outputs:
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


COLUMNS = (
    "op, shape | blocks | must move KB | traffic | naive | row copies KB | scalar/element | beyond rows | naive "
    "| imbalance | UB KB | est. cycles S / V / MTE2 / MTE3 of the busiest block | naive est. cycles"
)


def _cells(cost: Cost, naive: Cost) -> list[str]:
    naive_scalars = naive.scalars_per_element + naive.gm_scalars_per_element
    return [
        f"{cost.op} {cost.shape}",
        str(cost.blocks),
        f"{cost.must_kb:.1f}",
        f"{cost.traffic:.2f}",
        f"{naive.traffic:.2f}",
        f"{cost.copies_kb:.1f}",
        f"{cost.scalars_per_element:.3f}",
        f"{cost.scalars_beyond_rows:.3f}",
        f"{naive_scalars:.1f}",
        f"{cost.imbalance:.0%}" + ("" if cost.large else " (small)"),
        f"{cost.ub_peak_kb:.0f}",
        " / ".join(f"{cost.cycles[pipe]:.0f}" for pipe in ("S", "V", "MTE2", "MTE3")),
        " / ".join(f"{naive.cycles[pipe]:.0f}" for pipe in ("S", "V", "MTE2", "MTE3")),
    ]


def _table(costs: list[Cost], naive: list[Cost]) -> str:
    rows = [COLUMNS.split(" | "), *(_cells(*pair) for pair in zip(costs, naive, strict=True))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]) + "\n"


def _long_table(costs: dict[str, Cost]) -> str:
    lines = [
        "| step of 16 rows at a million tokens, tables of | must move KB | traffic | 32-byte blocks in full | copies |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {kind} | {cost.must_kb:.1f} | {cost.traffic:.2f} | {cost.blocks_traffic:.2f} | {cost.copy_calls} |"
        for kind, cost in costs.items()
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help="ops to run; all when none is named")
    parser.add_argument("--small", action="store_true", help="small shapes")
    parser.add_argument("--naive-json", action="store_true", help="run the naive kernels and print their costs as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    naive_ones = arguments.naive_json
    costs = run_cases(arguments.ops, AscendSim(NAIVE_KERNELS if naive_ones else None), arguments.small, naive_ones)
    if arguments.naive_json:
        json.dump([asdict(cost) for cost in costs], sys.stdout)
        return
    naive = naive_costs(arguments.ops, arguments.small)
    table = _table(costs, naive)
    if not arguments.ops:
        table += "\n" + _long_table(long_steps(AscendSim()))
    print(table)
    artifacts = ROOT / "artifacts"
    artifacts.mkdir(exist_ok=True)
    both: list[dict[str, Any]] = [
        {"ours": asdict(ours), "naive": asdict(other)} for ours, other in zip(costs, naive, strict=True)
    ]
    (artifacts / "simulated_cost.json").write_text(json.dumps(both, indent=1) + "\n")
    (artifacts / "simulated_cost.md").write_text(table)
    print(f"wrote {artifacts.name}/simulated_cost.json and {artifacts.name}/simulated_cost.md")
    wrong = [f"{a.op} {a.shape}: other bytes" for a, b in zip(costs, naive, strict=True) if a.digest != b.digest]
    wrong += [breach for cost in costs for breach in breaches(cost)]
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()

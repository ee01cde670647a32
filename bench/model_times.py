"""Times of the device kernels by the simulator's time model (tests/ascend_sim/src/time_model.h), and what bounds them.

    python bench/model_times.py [op ...] [--earlier times.json]

A model of published figures; nothing here was measured on a device. Prints a table, beside one of an earlier run, and
writes artifacts/model_times.json and artifacts/model_times.md, and for all ops what npu_first_measurements.py compares.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.append(str(ROOT / "tests"))

from ascend_backend.backend import BUILD, AscendSim  # noqa: E402
from ascend_sim.instructions import code_instructions, load_table  # noqa: E402
from cache_cost_cases import map_full_to_swa, release_pages, reserve_extend, write_req_tables  # noqa: E402
from moved import WIDTH, CostCase  # noqa: E402
from npu_first_measurements import CASES, MILLION, MODEL, launch  # noqa: E402
from rope_cost_cases import rope_gather  # noqa: E402
from step_cost_cases import CONTEXT, advance_step, compressor_metadata, draft_steps, draft_steps_apart, step  # noqa: E402

CORES = 40
"""Vector cores of a 910B3."""
KERNELS = BUILD / "cmake" / "tests" / "ascend_backend"
LIBRARY = KERNELS / "libdsv4_sim_kernels.so"
ROWS = (64, 256)


@dataclass(frozen=True)
class ModelTime:
    """Of one launch, in microseconds.

    ``launch`` grows with the blocks; ``cold`` are arguments and code that are in no cache; the others are of the block
    that ends last: ``scalar`` work, ``waiting`` of the scalar unit for the other pipes, and how long those are busy
    meanwhile. ``code_kb`` is the code that a block runs, 4 bytes an instruction.
    """

    op: str
    shape: str
    blocks: int
    total: float
    launch: float
    cold: float
    scalar: float
    waiting: float
    vector: float
    loads: float
    stores: float
    code_kb: float

    @property
    def name(self) -> str:
        return f"{self.op} {self.shape}"

    @property
    def bound(self) -> str:
        parts = {"launch": self.launch, "cold caches": self.cold, "scalar": self.scalar}
        busiest = max(("vector", "loads", "stores"), key=lambda part: getattr(self, part))
        parts[busiest if getattr(self, busiest) > self.waiting / 2 else "latency"] = self.waiting
        return max(parts, key=parts.__getitem__)


EXCELLENT = {
    "step all, verify B={} n=4 context=8192": (7, 10),
    "step all, verify B={} n=4 context=1048576": (9, 14),
    "step metadata, verify B={} n=4 context=8192": (5, 7),
    "step slots, verify B={} n=4 context=8192": (5, 6),
    "advance_step B={} n=4 hidden=0": (4, 5),
    "advance_step B={} n=4 hidden=7168": (6, 10),
    "reserve_extend verify B={} L=2048 n=4": (5, 7),
    "rope_gather T={tokens} D=64 scattered": (4, 5),
    "draft_steps table B={} topk=1 steps=3 D=64": (5, 6.5),
    "write_req_tables slots B={} n=4": (5, 7),
    "write_req_tables pages B={} n=4": (5, 7),
    "compressor_metadata r=4 B={} n=4": (6, 8),
    "map_full_to_swa verify B={} L=2048 n=4": (4, 6),
    "release_pages evict B={} L=1024": (6, 10),
}
"""Microseconds for 64 and 256 rows that a review of the kernels, by the same published figures, takes for excellent."""
ALLOWED = 1.5
"""Times that."""
ROUND = (
    "reserve_extend verify B={} L=2048 n=4",
    "step all, verify B={} n=4 context={context}",
    "advance_step B={} n=4 hidden=0",
    "draft_steps table B={} topk=1 steps=3 D=64",
)
"""Launches of a speculative round."""
DECODE_KERNELS = (
    "reserve_extend",
    "uniform_step",
    "advance_step",
    "draft_steps",
    "draft_steps_apart",
    "write_req_tables",
)
"""Those of a decode step whose code is to fit into the instruction cache."""
CACHE_KB = 16

CYCLES_PER_US, HOST_INSTRUCTION = 1850.0, 0.65
LAUNCH_US, LAUNCH_US_PER_BLOCK = 0.5, 0.14


def device_with_code() -> AscendSim:
    """The simulated device with the cores of a 910B3, whose time counts the kernels' own instructions."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    device = AscendSim()
    device.set_cores(CORES)
    load_table(LIBRARY, "aclrtlaunch_fill_step", ROOT / "csrc")
    return device


def model_time(case: CostCase, device: AscendSim) -> ModelTime:
    """Runs a case once."""
    device.take_counters()
    case.run()
    counters = device.take_counters()[-1]
    last = max((block["model_cycles"] for block in counters["per_block"]), key=lambda cycles: cycles["end"])
    us = {name: cycles / CYCLES_PER_US for name, cycles in last.items()}
    code_kb = counters["code_instructions"] * HOST_INSTRUCTION * 4 / 1024
    return ModelTime(
        op=case.op,
        shape=case.shape,
        blocks=counters["blocks"],
        total=counters["model_us"],
        launch=LAUNCH_US + LAUNCH_US_PER_BLOCK * counters["blocks"],
        cold=us["cold"],
        scalar=us["S"],
        waiting=us["end"] - us["S"] - us["cold"],
        vector=us["V"],
        loads=us["MTE2"],
        stores=us["MTE3"],
        code_kb=code_kb,
    )


def cases() -> Iterator[CostCase]:
    """A verify step's launches first."""
    for rows in ROWS:
        yield reserve_extend(rows, 2048, WIDTH, "verify")
        yield step(rows, "all", "verify", WIDTH)
        yield advance_step(rows, 0)
        yield draft_steps(rows, 1, 3, "table")
    for rows in ROWS:
        yield step(rows, "all", "verify", WIDTH, MILLION)
        yield step(rows, "metadata", "verify", WIDTH)
        yield step(rows, "slots", "verify", WIDTH)
        yield rope_gather(rows * WIDTH, "scattered")
        yield advance_step(rows, 7168)
        yield draft_steps_apart(rows, 3)
        yield from (write_req_tables(rows, 2048, WIDTH, kind) for kind in ("slots", "pages"))
        yield from (compressor_metadata(rows, WIDTH, ratio) for ratio in (4, 128))
        yield map_full_to_swa(rows, 2048, WIDTH, "verify")
        yield release_pages(rows, 1024, "evict")


def first_measurements(device: AscendSim) -> dict[str, float]:
    """Microseconds of the launches of npu_first_measurements.py, by their names."""
    found = {}
    for name, (blocks, *shape) in CASES.items():
        run = launch("cpu", *shape)
        device.force_blocks(blocks)
        device.take_counters()
        run()
        device.force_blocks(0)
        found[name] = round(device.take_counters()[-1]["model_us"], 2)
    return found


def code_sizes() -> dict[str, float]:
    """KB of each kernel's whole code, 4 bytes an instruction: a stand-in, since the device's compiler makes it."""
    found = sorted(KERNELS.glob("CMakeFiles/dsv4_sim_kernels.dir/**/*_kernel.cpp.o"))
    return {
        file.name.removesuffix("_kernel.cpp.o"): code_instructions(file, ROOT / "csrc") * HOST_INSTRUCTION * 4 / 1024
        for file in found
    }


def table(times: list[ModelTime], earlier: dict[str, ModelTime]) -> str:
    columns = [
        "op, shape",
        "blocks",
        "model us",
        "earlier us",
        "launch",
        "cold",
        "scalar",
        "waiting",
        "code KB",
        "bound",
    ]
    lines = []
    for time in times:
        before = earlier.get(time.name)
        numbers = [f"{n:.1f}" for n in (time.launch, time.cold, time.scalar, time.waiting, time.code_kb)]
        total = [f"{time.total:.1f}", f"{before.total:.1f}" if before else ""]
        lines.append([time.name, str(time.blocks), *total, *numbers, time.bound])
    widths = [max(len(row[column]) for row in [columns, *lines]) for column in range(len(columns))]
    rows = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in [columns, *lines]]
    return "\n".join([rows[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *rows[1:]]) + "\n"


def shares_of_allowed(times: list[ModelTime]) -> dict[str, tuple[float, ...]]:
    """For each line of `EXCELLENT`: the times of both numbers of rows, and what share of the allowed ones they are."""
    found = {time.name: time.total for time in times}
    shares = {}
    for name, excellent in EXCELLENT.items():
        both = [found.get(name.format(rows, tokens=rows * WIDTH)) for rows in ROWS]
        if all(both):
            shares[name] = (*both, *(time / (ALLOWED * best) for time, best in zip(both, excellent, strict=True)))
    return shares


def review_table(times: list[ModelTime]) -> str:
    lines = ["| kernel | excellent us | model us | of 1.5 times that |", "|---|---|---|---|"]
    for name, (few, many, share, other) in shares_of_allowed(times).items():
        best = " / ".join(f"{us:g}" for us in EXCELLENT[name])
        lines.append(f"| {name} | {best} | {few:.1f} / {many:.1f} | {share:.0%} / {other:.0%} |")
    return "\n".join(lines) + "\n"


def rounds(times: list[ModelTime]) -> dict[tuple[int, int], float]:
    """(rows, context) -> the time of a round's launches."""
    found = {time.name: time.total for time in times}
    return {
        (rows, context): sum(found[name.format(rows, context=context)] for name in ROUND)
        for rows in ROWS
        for context in (CONTEXT, MILLION)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help="ops to run; all when none is named")
    parser.add_argument("--earlier", type=Path, help="model_times.json of another tree")
    arguments = parser.parse_args()
    device = device_with_code()
    times = [model_time(case, device) for case in cases() if not arguments.ops or case.op in arguments.ops]
    before = json.loads(arguments.earlier.read_text())["times"] if arguments.earlier else []
    earlier = {time.name: time for time in (ModelTime(**fields) for fields in before)}
    text = table(times, earlier) + "\n" + review_table(times)
    if not arguments.ops:
        sums = ", ".join(f"B={rows} context={context} {us:.1f}" for (rows, context), us in rounds(times).items())
        text += f"\nA round, us: {sums}\n"
    sizes = code_sizes()
    text += "\nCode, KB: " + ", ".join(f"`{op}` {size:.1f}" for op, size in sizes.items()) + "\n"
    print(text)
    artifacts = ROOT / "artifacts"
    artifacts.mkdir(exist_ok=True)
    (artifacts / "model_times.json").write_text(
        json.dumps({"times": [asdict(time) for time in times], "code_kb": sizes}, indent=1) + "\n"
    )
    (artifacts / "model_times.md").write_text(text)
    if not arguments.ops:
        MODEL.write_text(json.dumps(first_measurements(device), indent=1) + "\n")


if __name__ == "__main__":
    main()

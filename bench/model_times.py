"""Times of the device kernels by the simulator's time model (tests/ascend_sim/src/time_model.h), and what bounds them.

    python bench/model_times.py [op ...] [--earlier times.json]

A model of published figures; nothing here was measured on a device. Prints a table, beside one of an earlier run, and
writes artifacts/model_times.json and artifacts/model_times.md.
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
from rope_cost_cases import rope_gather  # noqa: E402
from step_cost_cases import advance_step, compressor_metadata, draft_steps, draft_steps_apart, step  # noqa: E402

CORES = 40
"""Vector cores of a 910B3."""
KERNELS = BUILD / "cmake" / "tests" / "ascend_backend"
MILLION = 1 << 20


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
    def bound(self) -> str:
        parts = {"launch": self.launch, "cold caches": self.cold, "scalar": self.scalar}
        busiest = max(("vector", "loads", "stores"), key=lambda part: getattr(self, part))
        parts[busiest if getattr(self, busiest) > self.waiting / 2 else "latency"] = self.waiting
        return max(parts, key=parts.__getitem__)


CYCLES_PER_US, HOST_INSTRUCTION = 1850.0, 0.65
LAUNCH_US, LAUNCH_US_PER_BLOCK = 0.5, 0.14


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
    """Of 64 and 256 rows, a verify step's launches first."""
    for rows in (64, 256):
        yield reserve_extend(rows, 2048, WIDTH, "verify")
        yield step(rows, "all", "verify", WIDTH)
        yield advance_step(rows, 0)
        yield draft_steps(rows, 1, 3, "table")
    for rows in (64, 256):
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
        before = earlier.get(f"{time.op} {time.shape}")
        numbers = [f"{n:.1f}" for n in (time.launch, time.cold, time.scalar, time.waiting, time.code_kb)]
        total = [f"{time.total:.1f}", f"{before.total:.1f}" if before else ""]
        lines.append([f"{time.op} {time.shape}", str(time.blocks), *total, *numbers, time.bound])
    widths = [max(len(row[column]) for row in [columns, *lines]) for column in range(len(columns))]
    rows = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in [columns, *lines]]
    return "\n".join([rows[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *rows[1:]]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help="ops to run; all when none is named")
    parser.add_argument("--earlier", type=Path, help="model_times.json of another tree")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    device = AscendSim()
    device.set_cores(CORES)
    load_table(KERNELS / "libdsv4_sim_kernels.so", "aclrtlaunch_fill_step", ROOT / "csrc")
    times = [model_time(case, device) for case in cases() if not arguments.ops or case.op in arguments.ops]
    before = json.loads(arguments.earlier.read_text())["times"] if arguments.earlier else []
    earlier = {f"{time['op']} {time['shape']}": ModelTime(**time) for time in before}
    text = table(times, earlier)
    sizes = code_sizes()
    text += "\nCode, KB: " + ", ".join(f"`{op}` {size:.1f}" for op, size in sizes.items()) + "\n"
    print(text)
    artifacts = ROOT / "artifacts"
    artifacts.mkdir(exist_ok=True)
    (artifacts / "model_times.json").write_text(
        json.dumps({"times": [asdict(time) for time in times], "code_kb": sizes}, indent=1) + "\n"
    )
    (artifacts / "model_times.md").write_text(text)


if __name__ == "__main__":
    main()

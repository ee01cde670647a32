"""Runs every bench_*.py beside this file, prints a table and writes artifacts/bench.json and artifacts/bench.png."""

import argparse
import importlib
import json
import sys
from pathlib import Path

import matplotlib
import torch
from harness import Case, compare

import dsv4_npu_ops  # noqa: F401

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def _cases(names: list[str]) -> list[Case]:
    modules = sorted(path.stem for path in HERE.glob("bench_*.py"))
    return [
        case
        for module in modules
        if not names or module.removeprefix("bench_") in names
        for case in importlib.import_module(module).cases()
    ]


def _measure(case: Case) -> dict[str, object]:
    floor = getattr(torch.ops.dsv4_npu_bench, f"empty_{case.num_outputs}")
    like = torch.empty(1)
    result = compare(case.ours, case.baseline)
    floor_us = compare(lambda: floor(like), lambda: None, rounds=5, budget_us=5_000).ours_us
    return {
        "op": case.op,
        "shape": case.shape,
        "baseline": case.baseline_name,
        "ours_us": result.ours_us,
        "floor_us": floor_us,
        "baseline_us": result.baseline_us,
        "ratio": result.ratio,
        "target": case.target,
    }


def _row(cells: list[str]) -> str:
    return f"{cells[0]:24} {cells[1]:34} {cells[2]:>10} {cells[3]:>12} {cells[4]:>13} {cells[5]:>8} {cells[6]:>7}"


def _plot(rows: list[dict], path: Path) -> None:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 0.34 * len(rows) + 1.4), layout="constrained")
    names = [f"{row['op']}  {row['shape']}" for row in rows]
    axes.barh(names, [row["ratio"] for row in rows], color="#3b6ea5")
    for index, row in enumerate(rows):
        if row["target"]:
            axes.plot([row["target"]] * 2, [index - 0.4, index + 0.4], color="#c0392b")
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("times as fast as the baseline in the same run (red: target on a CPU)")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*", help="ops to run; all when none is named")
    parser.add_argument("--device", default="cpu", help="where the tensors of both sides live (docs/npu.md)")
    arguments = parser.parse_args()
    torch.set_default_device(arguments.device)
    torch.set_num_threads(1)
    torch.ops.load_library(str(ROOT / "build" / "cmake" / "bench" / "dsv4_bench_ops.so"))

    print(_row(["op", "shape", "ours us", "empty op us", "baseline us", "ratio", "target"]))
    rows = []
    for case in _cases(arguments.ops):
        row = _measure(case)
        rows.append(row)
        times = [f"{row[key]:.1f}" for key in ("ours_us", "floor_us", "baseline_us", "ratio")]
        print(_row([case.op, case.shape, *times, f"{case.target:g}" if case.target else ""]))
        sys.stdout.flush()
    artifacts = ROOT / "artifacts"
    artifacts.mkdir(exist_ok=True)
    (artifacts / "bench.json").write_text(json.dumps(rows, indent=1) + "\n")
    _plot(rows, artifacts / "bench.png")
    print(f"wrote {artifacts.name}/bench.json and {artifacts.name}/bench.png")


if __name__ == "__main__":
    main()

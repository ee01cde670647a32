"""SGLang's own bookkeeping beside the plug-in's, in one process: python bench/engines_sglang.py [--version 0.5.23]

Operations are those that torch dispatches on tensors of the step, views not counted; time is that of the host on a
CPU, where every operation also computes. CANN's metadata operators are left out on both sides.
"""

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_table import operations, print_header, print_row
from harness import compare

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

KINDS = {
    "gathers and scatters": "index index_select gather scatter_add_ index_put_ nonzero masked_fill_ masked_select",
    "comparisons": "eq ne gt ge lt le where remainder bitwise_and logical_and all any",
    "arithmetic": "add sub mul floor_divide floor_divide_ clamp cumsum max sum rsub neg bitwise_not sort argsort",
    "copies and casts": "copy_ _to_copy clone cat repeat_interleave repeat expand_copy stack",
    "fills and allocations": "zeros empty full arange fill_ zero_ new_empty empty_like zeros_like ones_like full_like",
}
"""Names of operations by what they do; what is not here is other."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="0.5.23")
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--plot", type=Path, help="draws the last number of rows into this file")
    arguments = parser.parse_args()
    os.environ["SGLANG_VERSION"] = arguments.version
    described = f"context {arguments.context}, {arguments.width} tokens a verify, one thread"
    print_header(f"SGLang {arguments.version}", described)
    drawn = []
    for rows in arguments.rows:
        for name, theirs, ours in cases(rows, arguments.context, arguments.width):
            before, after = operations(theirs), operations(ours)
            taken = compare(ours, theirs)
            print_row(name, rows, before, taken.baseline_us, after, taken.ours_us, taken.ratio)
            if rows == arguments.rows[-1]:
                drawn.append((name, before, taken.baseline_us, after, taken.ours_us))
    if arguments.plot:
        plot(
            drawn, f"SGLang {arguments.version}, B = {arguments.rows[-1]}, context {arguments.context}", arguments.plot
        )


def plot(drawn: list[tuple[str, Counter, float, Counter, float]], title: str, path: Path) -> None:
    """Operations by kind, and time, of each job before and after."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "dsv4_npu_ops"  # the same file from the same numbers
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 0.62 * len(drawn) + 1.6), layout="constrained")
    kind_of = {name: kind for kind, names in KINDS.items() for name in names.split()}
    kinds = [*KINDS, "other", "ops of this package"]
    places, labels, begins = [], [], []
    for row, (name, before, _, after, _) in enumerate(drawn):
        for side, counted in ((0, before), (1, after)):
            places.append(row + 0.38 * side - 0.19)
            labels.append(f"{name}, {'with the plug-in' if side else 'SGLang'}")
            begins.append(counted)
    reached = [0.0] * len(places)
    for kind in kinds:
        sizes = [
            sum(n for name, n in counted.items() if (kind_of.get(name) or _other(name)) == kind) for counted in begins
        ]
        left.barh(places, sizes, left=reached, height=0.34, label=kind)
        reached = [a + b for a, b in zip(reached, sizes, strict=True)]
    left.set_yticks(places, labels, fontsize=7)
    left.invert_yaxis()
    left.set_xlabel("torch operations")
    left.legend(fontsize=7)
    times = [us for _, _, slow, _, fast in drawn for us in (slow, fast)]
    right.barh(places, times, height=0.34, color=["#8aa1b8", "#3b6ea5"] * len(drawn))
    right.set_xscale("log")
    right.set_yticks(places, [])
    right.invert_yaxis()
    right.set_xlabel("microseconds of one CPU thread, medians")
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def _other(name: str) -> str:
    import torch

    return "ops of this package" if hasattr(torch.ops.dsv4_npu_ops, name) else "other"


def cases(rows: int, context: int, width: int) -> list[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """Names and both sides of what is measured."""
    import torch

    torch.set_num_threads(1)
    from engines.sglang import test_bundle, test_eager, test_graphs
    from engines.sglang.world import ForwardMode, World, explicit_state_tables, sgl

    from dsv4_npu_ops.engines.sglang import bundle, eager, graphs

    test_graphs.BUCKETS = (rows,)
    draws = random.Random(rows)
    world = World(rows=rows + 1, context=context + 4 * width, width=width)
    requests = list(range(1, rows + 1))
    lengths = [draws.randint(context // 2, context - 2 * width) for _ in requests]
    world.extend(requests, lengths)
    world.lengths = dict(zip(requests, lengths, strict=True))
    world.reserve(requests, 2 * width)

    def refresh(mode: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
        pair = test_graphs.Pair(world, mode)
        batch = pair.batch(requests, rows)
        for backend in (pair.theirs, pair.ours):
            backend._refresh_graph_kernel_metadata = lambda context: None
            backend.init_forward_metadata_out_graph(batch)
        return (
            lambda: pair.theirs._apply_dsv4_graph_metadata(batch),
            lambda: graphs.apply_graph_metadata(None, pair.ours, batch),
        )

    def eager_step(mode: Any, starts: list[int], widths: list[int]) -> tuple[Callable[[], Any], Callable[[], Any]]:
        batch = test_eager.batch_of(world, mode, requests, starts, widths)
        sides = []
        for _ in range(2):
            backend = test_graphs.backend_of(world)
            backend.forward_metadata = sgl.ascend.ForwardMetadata()
            ends = torch.tensor([0, *widths]).cumsum(0).int()
            backend.forward_metadata.actual_seq_lengths_q_pa = ends
            backend.forward_metadata.seq_lens_cpu_int = batch.seq_lens_cpu.int() + (
                width if mode.is_target_verify() else 0
            )
            sides.append(backend)

        def theirs() -> None:
            metadata = sides[0].forward_metadata
            sides[0]._build_npu_compress_metadata(batch)
            explicit_state_tables(world, batch, metadata)

        return theirs, lambda: eager.build_compress_metadata(None, sides[1], batch)

    bundle_batch = test_bundle.batch_of(world, requests, width, torch.int64)
    chunk = min(1024, context // 4)
    return [
        ("verify graph refresh", *refresh(ForwardMode.TARGET_VERIFY)),
        (
            "verify bundle",
            lambda: sgl.hooks.maybe_build_dsv4_verify_bundle(bundle_batch, width),
            lambda: bundle.build_verify_bundle(None, bundle_batch, width),
        ),
        ("eager verify", *eager_step(ForwardMode.TARGET_VERIFY, lengths, [width] * rows)),
        ("eager decode", *eager_step(ForwardMode.DECODE, lengths, [1] * rows)),
        ("chunked prefill", *eager_step(ForwardMode.EXTEND, [n - chunk for n in lengths], [chunk] * rows)),
    ]


if __name__ == "__main__":
    main()

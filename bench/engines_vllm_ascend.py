"""vLLM-Ascend's own bookkeeping beside the plug-in's, in one process: python bench/engines_vllm_ascend.py

Both sides are called as the engine calls them; ours with what catches a call that is not as expected. Operations are
those that torch dispatches on tensors of the step, views not counted; time is that of the host on a CPU, where every
operation also computes. CANN's metadata operators give a constant on both sides; what the builders copy of it counts.
"""

import argparse
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_table import operations, print_header, print_row
from harness import compare

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

# The engine splits the layers of windows, of which there are twice as many as of ratio 4, into groups of one size.
GROUPS = (
    ("c4", 128, 4),
    ("c128", 128, 128),
    ("swa", 128, 1),
    ("swa_others", 128, 1),
    ("c4_state", 8, 1),
    ("c128_state", 32, 1),
)

Case = tuple[str, Callable[[], Any], Callable[[], Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="0.23.0")
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--width", type=int, default=4, help="tokens of a request in a step, and drafts of one")
    arguments = parser.parse_args()
    os.environ |= {"VLLM_ASCEND_VERSION": arguments.version, "ENGINE_ROPE_DIM": "64"}
    described = f"context {arguments.context}, {arguments.width} tokens and drafts, one thread"
    print_header(f"vLLM-Ascend {arguments.version}", described)
    for rows in arguments.rows:
        for name, theirs, ours in cases(rows, arguments.context, arguments.width):
            before, after = operations(theirs), operations(ours)
            taken = compare(ours, theirs)
            print_row(name, rows, before, taken.baseline_us, after, taken.ours_us, taken.ratio)


def cases(rows: int, context: int, width: int) -> list[Case]:
    """Names and both sides of what is measured."""
    import torch

    torch.set_num_threads(1)
    from engines.vllm_ascend import world as w

    limits = w.Limits(rows=rows, tokens=max(1024, rows * width), length=context, drafts=width)
    world = w.World(1, limits, groups=GROUPS)
    given = torch.arange(1024, dtype=torch.int32)
    w.cann._called = lambda name, arguments: given  # type: ignore[method-assign]
    draws = random.Random(rows)
    batch = w.Batch([w.Row(draws.randint(context // 2, context - width), width) for _ in range(rows)])
    world.begin(batch)
    return [
        builders(world, batch),
        ("whole metadata of a step", *both_sides(lambda: world.metadata(batch))),
        *drafts(world, rows, width),
    ]


def both_sides(call: Callable[[], Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The engine's functions, and ours in their place."""
    from engines.vllm_ascend.world import switch

    def switched() -> None:
        switch.on = True
        call()
        switch.on = False

    switched()
    return call, switched


def builders(world: Any, batch: Any) -> Case:
    """Every builder's ``build`` for one step, with what the runner does for all of them on our side."""
    from engines.vllm_ascend.world import Builder, switch

    from dsv4_npu_ops.engines.vllm_ascend import builders as our_builders
    from dsv4_npu_ops.engines.vllm_ascend import runner, step

    calls: list[tuple[Any, Any, dict[str, Any]]] = []
    build = Builder.build

    def recorded(self: Any, common_prefix_len: int, common_attn_metadata: Any, **options: Any) -> Any:
        calls.append((self, common_attn_metadata, options))
        return build(self, common_prefix_len, common_attn_metadata, **options)

    Builder.build = recorded
    world.metadata(batch)
    Builder.build = build
    rows = len(batch.rows)
    # What chooses between the two is of neither side.
    theirs, ours = build.__wrapped__, switch.ours[our_builders.HOOKS[0].target]

    def build_all(build: Callable[..., Any] = theirs) -> None:
        dictionaries: dict[str, Any] = {name: {} for name in calls[0][2] if name.endswith("_sas_metadata")}
        for builder, common, options in calls:
            build(builder, common_prefix_len=0, common_attn_metadata=common, **{**options, **dictionaries})

    def build_ours() -> None:
        switch.on = True
        step.current.step = runner._prepare(world.runner, rows, {})
        build_all(ours)
        step.current.step, switch.on = None, False

    return f"{len(calls)} builders of a step", build_all, build_ours


def drafts(world: Any, rows: int, width: int) -> list[Case]:
    """Every step of a draft behind its first pass; and what is prepared from the samples of a step."""
    import torch
    from engines.vllm_ascend import proposers

    from dsv4_npu_ops.engines.vllm_ascend import samples

    draws = random.Random(rows)
    drafter = proposers.proposer_of(world)
    common, kept = proposers.drafted_batch(draws, world, rows=rows)
    cases: list[Case] = []
    for mode in (proposers.EAGER, proposers.FULL):
        name = f"draft stack, {'graph' if mode is proposers.FULL else 'eager'}"
        cases.append((name, *both_sides(lambda m=mode: proposers.run_stack(drafter, common, kept, rows, m))))  # type: ignore[misc]
    drawn = proposers.Round.draw(draws, world, rows=rows, verifies=True)
    drawn.samples = torch.where(torch.arange(width + 1) < width // 2, drawn.samples.clamp(min=0), -1)

    def prepare() -> None:
        drafter.__dict__[samples._ROUND] = drawn.speculative, drawn.common
        _, counts = drafter.prepare_next_token_ids_padded(
            drawn.samples, drawn.requests, drawn.batch, drawn.discarded, 0
        )
        drafter.prepare_inputs_padded(drawn.common, drawn.speculative, counts)

    return [*cases, ("next tokens and inputs", *both_sides(prepare))]


if __name__ == "__main__":
    main()

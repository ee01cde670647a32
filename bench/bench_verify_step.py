"""A verify step against slicing per request, chains and indexing in torch, and against the copy of all its outputs."""

from collections.abc import Callable, Iterator
from dataclasses import fields

import torch
from harness import Case
from torch_step import committed_lengths, filled_tables, flatten_bundle, verify_metadata

from dsv4_npu_ops import VerifyStep, build_verify_step

WIDTH = 4
ROPE_DIM = 64
BASELINE = "slices, chains and indexing"
COPY = "copy of all outputs"
# Ratio copy / ours. In the first an op that does nothing would take a part of the time.
COPIES = (((64, 8192), 1 / 1.8), ((64, 65_536), 1 / 1.5), ((16, 262_144), 1 / 1.5), ((16, 1_048_576), 1 / 1.5))


def copies() -> Iterator[Case]:
    """Long contexts: page tables are most of the outputs."""
    for (rows, context), target in COPIES:
        tables = filled_tables(rows, context)
        requests, lengths = committed_lengths(rows, context - WIDTH)
        cos, sin = torch.randn(context, ROPE_DIM), torch.randn(context, ROPE_DIM)
        out = VerifyStep.empty(tables, rows, rows * WIDTH, ROPE_DIM)
        parts = (out.out_cache_loc, out.metadata, out)
        tensors = {id(t): t for part in parts for t in vars_of(part) if isinstance(t, torch.Tensor)}
        step = (tables, requests, lengths, WIDTH, cos, sin)
        yield Case(
            "verify_step.out",
            f"B={rows} context={context} n={WIDTH}",
            lambda step=step, out=out: build_verify_step(*step, out=out),
            copy_of(list(tensors.values())),
            COPY,
            target=target,
        )


def vars_of(result: object) -> list[object]:
    """Values of a result's fields."""
    return [getattr(result, field.name) for field in fields(result)]  # type: ignore[arg-type]


def copy_of(tensors: list[torch.Tensor]) -> Callable[[], None]:
    """Copies every tensor into one of its own."""
    pairs = [(tensor.clone(), tensor) for tensor in tensors]

    def copy() -> None:
        for target, source in pairs:
            target.copy_(source)

    return copy


def cases() -> Iterator[Case]:
    """Steps of 64 to 4096 rows, and long contexts."""
    yield from copies()
    for rows, context in ((64, 8192), (512, 8192), (4096, 1024)):
        tables = filled_tables(rows, context)
        requests, lengths = committed_lengths(rows, context - WIDTH)
        cos, sin = torch.randn(context, ROPE_DIM), torch.randn(context, ROPE_DIM)
        out = VerifyStep.empty(tables.layout, rows, rows * WIDTH, ROPE_DIM)
        shape = f"B={rows} context={context} n={WIDTH}"
        step = (tables, requests, lengths, WIDTH)

        def baseline(
            step: tuple = step, cos: torch.Tensor = cos, sin: torch.Tensor = sin
        ) -> tuple[dict[str, torch.Tensor], ...]:
            metadata = verify_metadata(*step)
            rope = {
                f"{pool}_{name}": table[metadata[f"positions_{pool}"]]
                for pool in ("c4", "c128")
                for name, table in (("cos", cos), ("sin", sin))
            }
            return metadata, flatten_bundle(*step), rope

        yield Case(
            "verify_step",
            shape,
            lambda step=step, cos=cos, sin=sin: build_verify_step(*step, cos, sin),
            baseline,
            BASELINE,
            num_outputs=24,
        )
        yield Case(
            "verify_step.out",
            shape,
            lambda step=step, cos=cos, sin=sin, out=out: build_verify_step(*step, cos, sin, out=out),
            baseline,
            BASELINE,
            target=60 if rows == 64 else None,
        )

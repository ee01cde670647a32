"""The one op for a verify step against slicing per request, metadata chains and table indexing in torch."""

from collections.abc import Iterator

import torch
from harness import Case
from torch_step import committed_lengths, filled_tables, flatten_bundle, verify_metadata

from dsv4_npu_ops import VerifyStep, build_verify_step

WIDTH = 4
ROPE_DIM = 64
BASELINE = "slices, chains and indexing"


def cases() -> Iterator[Case]:
    """Steps of 64 to 4096 rows."""
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

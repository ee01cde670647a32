"""Refreshing a captured bucket against building the step elsewhere and copying it into the graph's buffers."""

from collections.abc import Iterator

import torch
from harness import Case
from torch import Tensor
from torch_step import committed_lengths, filled_tables, flatten_bundle, verify_metadata

from dsv4_npu_ops import RequestTables
from dsv4_npu_ops.graph import BucketShape, VerifyBucket

CONTEXT = 8192
WIDTH = 4
ROWS = 64
ROPE_DIM = 64


def build_in_torch(
    tables: RequestTables, requests: Tensor, lengths: Tensor, cos: Tensor, sin: Tensor
) -> dict[str, Tensor]:
    """A verify step of exactly the batch's size."""
    step = verify_metadata(tables, requests, lengths, WIDTH)
    step |= {f"{pool}_slots": slots for pool, slots in flatten_bundle(tables, requests, lengths, WIDTH).items()}
    for of, positions in (("c4", "positions_c4"), ("c128", "positions_c128"), ("token", "positions")):
        step[f"{of}_cos"], step[f"{of}_sin"] = cos[step[positions]], sin[step[positions]]
    return step


def cases() -> Iterator[Case]:
    """A full bucket and one with a few live rows, both from lengths on the host."""
    tables = filled_tables(ROWS, CONTEXT)
    cos, sin = torch.randn(CONTEXT, ROPE_DIM), torch.randn(CONTEXT, ROPE_DIM)
    bucket = VerifyBucket(tables, BucketShape(ROWS, WIDTH), cos, sin, token_rope={"main": (cos, sin)})
    full_requests, full_lengths = committed_lengths(ROWS, CONTEXT - WIDTH)
    buffers = {
        name: value.new_zeros((max(len(value), ROWS), *value.shape[1:]))
        for name, value in build_in_torch(tables, full_requests, full_lengths, cos, sin).items()
    }
    for live in (ROWS, 5):
        requests, lengths = full_requests[:live], full_lengths[:live]
        on_host = requests.tolist(), lengths.tolist()

        def ours(on_host: tuple[list[int], list[int]] = on_host) -> object:
            bucket.fill(*on_host)
            return bucket.refresh()

        def baseline(on_host: tuple[list[int], list[int]] = on_host) -> None:
            requests, lengths = (torch.tensor(values) for values in on_host)
            for name, value in build_in_torch(tables, requests, lengths, cos, sin).items():
                buffers[name][: len(value)].copy_(value)
                buffers[name][len(value) :].zero_()

        yield Case("graph fill + refresh", f"{live} of {ROWS} rows n={WIDTH}", ours, baseline, "build, copy and fill")

"""Compress metadata against index, where and cumsum chains in torch."""

from collections.abc import Iterator

import torch
from harness import Case
from torch_step import committed_lengths, filled_tables, prefill_metadata, verify_metadata

from dsv4_npu_ops import CompressMetadata, build_compress_metadata_prefill, build_compress_metadata_verify

CONTEXT = 8192
WIDTH = 4
BASELINE = "index/where/cumsum chains"


def _verify(rows: int, context: int) -> Iterator[Case]:
    tables = filled_tables(rows, context)
    requests, lengths = committed_lengths(rows, context - WIDTH)
    out = CompressMetadata.empty(tables.layout, rows, rows * WIDTH)
    shape = f"verify B={rows} context={context} n={WIDTH}"

    def baseline() -> object:
        return verify_metadata(tables, requests, lengths, WIDTH)

    yield Case(
        "compress_metadata",
        shape,
        lambda: build_compress_metadata_verify(tables, requests, lengths, WIDTH),
        baseline,
        BASELINE,
        num_outputs=14,
    )
    yield Case(
        "compress_metadata.out",
        shape,
        lambda: build_compress_metadata_verify(tables, requests, lengths, WIDTH, out=out),
        baseline,
        BASELINE,
    )


def cases() -> Iterator[Case]:
    """Verify steps of 64 to 4096 rows, and a prefill of 32 chunks of 1024 tokens."""
    yield from _verify(64, CONTEXT)
    yield from _verify(512, CONTEXT)
    yield from _verify(4096, 1024)
    tables = filled_tables(32, CONTEXT)
    requests, prefixes = committed_lengths(32, CONTEXT - 1024)
    lengths = prefixes + 1024
    yield Case(
        "compress_metadata",
        "prefill B=32 of 1024 tokens",
        lambda: build_compress_metadata_prefill(tables, requests, prefixes, lengths, num_tokens=32 * 1024),
        lambda: prefill_metadata(tables, requests, prefixes, lengths),
        BASELINE,
        num_outputs=14,
        target=25,
    )
    out = CompressMetadata.empty(tables.layout, 32, 32 * 1024)
    yield Case(
        "compress_metadata.out",
        "prefill B=32 of 1024 tokens",
        lambda: build_compress_metadata_prefill(tables, requests, prefixes, lengths, out=out),
        lambda: prefill_metadata(tables, requests, prefixes, lengths),
        BASELINE,
    )


def _same_results() -> None:
    """The baseline does the same job; checked before it is timed."""
    tables = filled_tables(8, CONTEXT)
    requests, lengths = committed_lengths(8, CONTEXT - 1024)
    lengths[3] = 0
    pairs = (
        (build_compress_metadata_verify(tables, requests, lengths, 5), verify_metadata(tables, requests, lengths, 5)),
        (
            build_compress_metadata_prefill(tables, requests, lengths, lengths + 300),
            prefill_metadata(tables, requests, lengths, lengths + 300),
        ),
    )
    for ours, baseline in pairs:
        for name, tensor in baseline.items():
            if not torch.equal(getattr(ours, name), tensor):
                raise AssertionError(f"bench_compress_metadata: the torch baseline differs in {name}")


_same_results()

"""Verify bundle, alone and with the metadata, against slicing and concatenating per request in torch."""

from collections.abc import Iterator

from harness import Case
from torch_step import committed_lengths, filled_tables, flatten_bundle, verify_metadata

from dsv4_npu_ops import OutCacheLoc, build_compress_metadata_verify, flatten_verify_bundle

WIDTH = 4
BASELINE = "slices and cat per request"


def cases() -> Iterator[Case]:
    """Steps of 64 to 4096 rows; the first also with metadata, as an engine needs both."""
    for rows, context in ((64, 8192), (512, 8192), (4096, 1024)):
        tables = filled_tables(rows, context)
        requests, lengths = committed_lengths(rows, context - WIDTH)
        out = OutCacheLoc.empty(tables.layout, rows, rows * WIDTH)
        shape = f"B={rows} context={context} n={WIDTH}"
        step = (tables, requests, lengths, WIDTH)
        yield Case(
            "verify_bundle",
            shape + " exact",
            lambda step=step: flatten_verify_bundle(*step, seq_lens_cpu=step[2]),
            lambda step=step: flatten_bundle(*step),
            BASELINE,
            num_outputs=6,
        )
        yield Case(
            "verify_bundle.out",
            shape,
            lambda step=step, out=out: flatten_verify_bundle(*step, out=out),
            lambda step=step: flatten_bundle(*step),
            BASELINE,
        )
        if rows == 64:
            yield Case(
                "metadata + bundle",
                shape,
                lambda step=step: (build_compress_metadata_verify(*step), flatten_verify_bundle(*step)),
                lambda step=step: (verify_metadata(*step), flatten_bundle(*step)),
                "both baselines",
                num_outputs=20,
                target=30,
            )

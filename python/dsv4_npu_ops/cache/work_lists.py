"""What the ledger decided, on its way to the ops that carry it out."""

from typing import NamedTuple

from torch import Tensor

from dsv4_npu_ops.cache.host_staging import HostStaging

PART_ROWS = 17
"""Rows behind a list's segments, which say where its parts begin (csrc/common/page_segments.h)."""

LedgerWork = tuple[Tensor, list[int]]
"""The list of an op and, behind it, that of the full-to-swa mapping, int32 ``[rows, 8]`` on the host; and [rows of the
first, its units or pages, rows of the second, its units]."""


class WorkLists(NamedTuple):
    """The two lists on the device, as the ops take them, and the units or pages of all segments of each."""

    segments: Tensor
    num_items: int
    map_segments: Tensor | None
    num_map_items: int


def on_device(work: LedgerWork, staging: HostStaging) -> WorkLists:
    """Both lists, by one copy."""
    segments, (rows, items, map_rows, map_items) = work
    (segments,) = staging.to_device(segments)
    if not map_rows:
        return WorkLists(segments, items, None, 0)
    return WorkLists(segments[:rows], items, segments[rows:], map_items)

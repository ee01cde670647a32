"""What the ledger decided, on its way to the ops that carry it out."""

from typing import NamedTuple

from torch import Tensor

from dsv4_npu_ops.cache.host_staging import HostStaging

LedgerWork = tuple[Tensor, list[int]]
"""Segments and, behind them, those of the full-to-swa mapping, int32 ``[S, 8]`` on the host; and their numbers:
[segments, their units or pages, map segments, their units]."""


class WorkLists(NamedTuple):
    """The two lists on the device, and the units or pages of all segments of each."""

    segments: Tensor
    num_items: int
    map_segments: Tensor | None
    num_map_items: int


def on_device(work: LedgerWork, staging: HostStaging) -> WorkLists:
    """Both lists, by one copy."""
    segments, (count, items, map_count, map_items) = work
    (segments,) = staging.to_device(segments)
    if not map_count:
        return WorkLists(segments, items, None, 0)
    return WorkLists(segments[:count], items, segments[count:], map_items)

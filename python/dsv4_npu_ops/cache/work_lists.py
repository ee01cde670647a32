"""What the ledger decided, on its way to the ops that carry it out."""

from typing import NamedTuple

from torch import Tensor

from dsv4_npu_ops.cache.host_staging import HostStaging

LedgerWork = tuple[Tensor, list[int]]
"""Segments and, behind them, those of the full-to-swa mapping, int32 ``[S, 8]`` on the host; and their numbers:
[segments, their units, map segments, their units]."""


class WorkLists(NamedTuple):
    """The two lists on the device, and the units of all segments of each."""

    segments: Tensor
    num_units: int
    map_segments: Tensor | None
    num_map_units: int


def on_device(work: LedgerWork, staging: HostStaging) -> WorkLists:
    """Both lists, by one copy."""
    segments, (count, units, map_count, map_units) = work
    (segments,) = staging.to_device(segments)
    if not map_count:
        return WorkLists(segments, units, None, 0)
    return WorkLists(segments[:count], units, segments[count:], map_units)

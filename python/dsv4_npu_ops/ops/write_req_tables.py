"""Table writes: wrapper and fake kernel of ``torch.ops.dsv4_npu_ops.write_req_tables``."""

import torch
from torch import Tensor

from dsv4_npu_ops.layout.kv_layout import POOLS
from dsv4_npu_ops.layout.out_cache_loc import OutCacheLoc
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.caller_errors import TABLES, caller_errors
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only

_write = torch.ops.dsv4_npu_ops.write_req_tables.default

_LOC = {f"{pool}_loc": f"loc.out_{pool}_loc" for pool in POOLS} | {
    "c4_state_starts": "state_starts[0]",
    "c128_state_starts": "state_starts[1]",
}


@caller_errors(TABLES | _LOC)
def write_req_tables(
    tables: RequestTables,
    req_pool_indices: Tensor,
    starts: Tensor,
    ends: Tensor,
    loc: OutCacheLoc,
    *,
    state_starts: Tensor | tuple[Tensor, Tensor] | None = None,
) -> None:
    """Writes flat slots into the request tables of all pools in one launch, for engines with an allocator of their own.

    Row i gets the units ``[starts[i] // u, ends[i] // u)`` of every pool that has a table; nothing else is touched. A
    table of slots takes the slots themselves, a table of pages for each page touched the page of the row's first slot
    in it, in a ring of columns at its column. Pools whose places a rule says have nothing to write. The slots of a pool
    are flat, row after row. A row with ``starts[i] == ends[i]`` is padding: it has no slots in any pool, and its
    request index is not looked at. A request may be named by several rows whose intervals do not overlap and, in tables
    of pages, do not touch one page.

    Args:
        tables: ours, or an engine's; its tables of slots and of pages are written.
        req_pool_indices: ``[B]`` int32 or int64 rows of the tables, on their device.
        starts, ends: ``[B]`` int32 or int64 raw tokens, on the tables' device.
        loc: int32 slots on the tables' device. Entries beyond the rows' units are ignored; a negative slot is written
            as 0 (none), as is the page of one. The slots of a pool that is not written are ignored.
        state_starts: where the state pools' intervals start, in raw tokens like ``starts``: ``[B]`` for both pools,
            or a pair or ``[2, B]`` for c4_state and c128_state. The intervals are then
            ``[state_starts[i], ends[i])``. Default ``starts``.

    Raises:
        ValueError: wrong dtype, shape or device; on a CPU also a request index or length out of range, an end before
            its start, or too few slots. Nothing was written.

    Source: docs/spec.md, table writes.
    """
    c4_state_starts, c128_state_starts = _per_pool(state_starts)
    _write(
        *tables.written_pools,
        tables.max_context_len,
        req_pool_indices,
        starts,
        ends,
        loc.in_order(),
        c4_state_starts=c4_state_starts,
        c128_state_starts=c128_state_starts,
    )


def _per_pool(state_starts: Tensor | tuple[Tensor, Tensor] | None) -> tuple[Tensor | None, Tensor | None]:
    if state_starts is None:
        return None, None
    if isinstance(state_starts, Tensor) and state_starts.dim() == 1:
        return state_starts, state_starts
    if len(state_starts) != 2:
        raise ValueError(
            f"write_req_tables: state_starts has {len(state_starts)} rows, expected one vector or two, "
            "for c4_state and c128_state"
        )
    return state_starts[0], state_starts[1]


fake_kernel("write_req_tables")(writes_only)

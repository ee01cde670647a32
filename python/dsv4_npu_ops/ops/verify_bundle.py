"""Verify bundle: slots of a step in all pools, by the op of ``build_step``."""

from dataclasses import fields

from torch import Tensor

from dsv4_npu_ops.layout.buffers import GROUPS, INT32, Buffer
from dsv4_npu_ops.layout.out_cache_loc import OutCacheLoc
from dsv4_npu_ops.layout.step_rows import COMMITTED_RAGGED, StepRows, check_rows
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.caller_errors import TABLES, caller_errors
from dsv4_npu_ops.ops.step import ResultFields, fill_step
from dsv4_npu_ops.ops.step_sizes import host_num_tokens

SLOT_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(OutCacheLoc))
"""Fields of a step that are slots of a pool."""

_fields = ResultFields({name: name for name in SLOT_FIELDS})


@caller_errors(TABLES, out=_fields.names)
def flatten_verify_bundle(
    tables: RequestTables,
    req_pool_indices: Tensor | None,
    seq_lens: Tensor,
    num_draft_tokens: int | Tensor,
    *,
    seq_lens_cpu: Tensor | None = None,
    num_draft_tokens_cpu: Tensor | None = None,
    num_tokens: int | None = None,
    out: OutCacheLoc | None = None,
) -> OutCacheLoc:
    """Slots of a target verify in all six pools, in one launch: units ``[L // u, (L + n) // u)`` of each row.

    Args:
        tables: request tables, read only.
        req_pool_indices: ``[B]`` int32 or int64 rows of the tables, on their device; None: row ``i`` of the batch is
            row ``i`` of the tables.
        seq_lens: ``[B]`` int32 or int64 committed lengths L, never with the drafts. A row of length 0 is padding.
        num_draft_tokens: n of this very batch for every row, or ``[B]`` int32 or int64 widths, one a row.
        seq_lens_cpu: the same lengths on the host. With it ``out_c4_loc`` and ``out_c128_loc`` have exactly one entry a
            completed group; without it they have ``max(1, min(T, T // r + B))`` and a zero tail.
        num_draft_tokens_cpu: ragged widths on the host; needed with ``seq_lens_cpu`` when the widths are on a device.
        num_tokens: T, the step's tokens, or more; default B * n, or the sum of the widths, which needs them on a CPU.
        out: buffers that are overwritten to their last entry (``OutCacheLoc.empty``); nothing is allocated, and the
            three numbers above are ignored.

    Returns:
        ``out``, or a new ``OutCacheLoc``.

    Raises:
        ValueError: as ``build_step``. Nothing was written.

    Source: docs/spec.md, a step.
    """
    rows = StepRows.verify(seq_lens, num_draft_tokens)
    if out is None:
        host_rows: StepRows | None = None
        groups: tuple[int | None, ...] = None, None
        if seq_lens_cpu is not None:
            host_rows = _host_rows(rows, seq_lens_cpu, num_draft_tokens_cpu)
            groups = tuple(GROUPS.values())
        if num_tokens is None:
            num_tokens = host_num_tokens(rows if host_rows is None else host_rows)
        sizes = seq_lens.shape[0], num_tokens, *groups
        return OutCacheLoc(*_fields.make(tables, rows, sizes, _buffers, req_pool_indices, host_rows=host_rows))
    fill_step(tables, rows, *_fields.take(out, tables), req_pool_indices)
    return out


def _buffers(
    tables: RequestTables, num_rows: int, num_tokens: int, c4_groups: int | None, c128_groups: int | None
) -> dict[str, Buffer]:
    """c4_groups, c128_groups: entries of the dense slots, where they are known."""
    buffers = OutCacheLoc.buffers(tables, num_rows, num_tokens)
    for pool, count in (("c4", c4_groups), ("c128", c128_groups)):
        if tables.has_pool(pool) and count is not None:
            buffers[f"out_{pool}_loc"] = INT32, count
    return buffers


def _host_rows(rows: StepRows, seq_lens_cpu: Tensor, num_draft_tokens_cpu: Tensor | None) -> StepRows:
    """The same rows with host tensors."""
    check_rows("step", seq_lens_cpu=seq_lens_cpu)
    if seq_lens_cpu.shape != rows.seq_lens.shape:
        raise ValueError(
            f"step: seq_lens_cpu has shape {list(seq_lens_cpu.shape)}, "
            f"expected {list(rows.seq_lens.shape)} like seq_lens"
        )
    if not seq_lens_cpu.is_cpu:
        raise ValueError(f"step: seq_lens_cpu is on {seq_lens_cpu.device}, expected a host copy (cpu)")
    if rows.form != COMMITTED_RAGGED:
        return StepRows(seq_lens_cpu, rows.form, None, rows.width)
    widths = rows.operand if num_draft_tokens_cpu is None else num_draft_tokens_cpu
    if widths is not None and not widths.is_cpu:
        raise ValueError(f"step: num_draft_tokens is on {widths.device}, expected a host copy (cpu)")
    return StepRows(seq_lens_cpu, rows.form, widths)

"""Verify bundle: wrapper and fake kernels of ``torch.ops.dsv4_npu_ops.verify_bundle``."""

import torch
from torch import Tensor

from dsv4_npu_ops.layout.capacity import group_capacity
from dsv4_npu_ops.layout.out_cache_loc import OutCacheLoc
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.caller_errors import TABLES, caller_errors, field_names
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only
from dsv4_npu_ops.ops.reserved import check_reserved
from dsv4_npu_ops.ops.step_sizes import FORM_VERIFY_RAGGED, check_rows, host_num_tokens, step_sizes, verify_form

_bundle = torch.ops.dsv4_npu_ops.verify_bundle.default
_bundle_out = torch.ops.dsv4_npu_ops.verify_bundle.out


@caller_errors(TABLES, out=field_names("out", OutCacheLoc))
def flatten_verify_bundle(
    tables: RequestTables,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    num_draft_tokens: int | Tensor,
    *,
    seq_lens_cpu: Tensor | None = None,
    num_draft_tokens_cpu: Tensor | None = None,
    num_tokens: int | None = None,
    out: OutCacheLoc | None = None,
) -> OutCacheLoc:
    """Slots of a target verify in all six pools, in one launch: table interval ``[L // u, (L + n) // u)`` of each row.

    Args:
        tables: request tables, read only.
        req_pool_indices: ``[B]`` int32 or int64 rows of the tables, on their device.
        seq_lens: ``[B]`` int32 or int64 committed lengths L, never with the drafts. A row of length 0 is padding.
        num_draft_tokens: n of this very batch for every row, or ``[B]`` int32 or int64 widths, one a row.
        seq_lens_cpu: the same lengths on the host. With it ``out_c4_loc`` and ``out_c128_loc`` have exactly one entry a
            completed group; without it they have ``group_capacity(T, B, ratio)`` and a zero tail.
        num_draft_tokens_cpu: ragged widths on the host; needed with ``seq_lens_cpu`` when the widths are on a device.
        num_tokens: T, the step's tokens, or more; default B * n, or the sum of the widths, which needs them on a CPU.
        out: buffers that are overwritten to their last entry (``OutCacheLoc.empty``); nothing is allocated, and the
            three numbers above are ignored.

    Returns:
        ``out``, or a new ``OutCacheLoc``.

    Raises:
        ValueError: wrong dtype, shape, device or strides; a buffer too small; on a CPU also a negative length or width,
            tokens beyond ``max_context_len``, or an unknown request. Nothing was written.

    Source: docs/spec.md, verify bundle.
    """
    form, width, widths = verify_form("verify_bundle", num_draft_tokens)
    check_rows("verify_bundle", req_pool_indices=req_pool_indices, seq_lens=seq_lens)
    check_reserved("verify_bundle", tables, req_pool_indices, seq_lens, widths, form, width)
    context = tables.layout.max_context_len
    rows = (*tables.in_order(), req_pool_indices, seq_lens, widths, width)
    if out is not None:
        _bundle_out(
            *rows,
            context,
            out_full_loc=out.out_full_loc,
            out_swa_loc=out.out_swa_loc,
            out_c4_loc=out.out_c4_loc,
            out_c128_loc=out.out_c128_loc,
            out_c4_state_loc=out.out_c4_state_loc,
            out_c128_state_loc=out.out_c128_state_loc,
        )
        return out
    if seq_lens_cpu is not None:
        check_rows("verify_bundle", seq_lens_cpu=seq_lens_cpu)
        if seq_lens_cpu.shape != seq_lens.shape:
            raise ValueError(
                f"verify_bundle: seq_lens_cpu has shape {list(seq_lens_cpu.shape)}, "
                f"expected {list(seq_lens.shape)} like seq_lens"
            )
        host_widths = num_draft_tokens_cpu if num_draft_tokens_cpu is not None else widths
        for name, host in (("seq_lens_cpu", seq_lens_cpu), ("num_draft_tokens", host_widths)):
            if host is not None and not host.is_cpu:
                raise ValueError(f"verify_bundle: {name} is on {host.device}, expected a host copy (cpu)")
        tokens, c4_groups, c128_groups = step_sizes(
            seq_lens_cpu, None, host_widths if form == FORM_VERIFY_RAGGED else None, form, width
        )
        num_tokens = tokens if num_tokens is None else num_tokens
    else:
        if num_tokens is None:
            num_tokens = host_num_tokens("verify_bundle", seq_lens, None, widths, form, width)
        c4_groups = group_capacity(num_tokens, seq_lens.shape[0], 4)
        c128_groups = group_capacity(num_tokens, seq_lens.shape[0], 128)
    return OutCacheLoc(*_bundle(*rows, num_tokens, c4_groups, c128_groups, context))


def empty_slots(
    req_pool_indices: Tensor, tables: tuple[Tensor, ...], num_tokens: int, c4_groups: int, c128_groups: int
) -> tuple[Tensor, ...]:
    """The six outputs with their sizes and no values, for fake kernels. ``tables``: all six, in table order."""
    entries = (num_tokens, num_tokens, c4_groups, c128_groups, num_tokens, num_tokens)
    return tuple(
        req_pool_indices.new_empty((size if table.shape[1] != 0 else 0,), dtype=torch.int32)
        for table, size in zip(tables, entries, strict=True)
    )


@fake_kernel("verify_bundle")
def _(
    full_table: Tensor,
    swa_table: Tensor,
    c4_table: Tensor,
    c128_table: Tensor,
    c4_state_table: Tensor,
    c128_state_table: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    num_draft_tokens: Tensor | None,
    width: int,
    num_tokens: int,
    c4_groups: int,
    c128_groups: int,
    max_context_len: int,
) -> tuple[Tensor, ...]:
    tables = (full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table)
    return empty_slots(req_pool_indices, tables, num_tokens, c4_groups, c128_groups)


fake_kernel("verify_bundle.out")(writes_only)

"""One op for a verify step: wrapper and fake kernels of ``torch.ops.dsv4_npu_ops.verify_step``."""

import torch
from torch import Tensor

from dsv4_npu_ops.layout.compress_metadata import CompressMetadata
from dsv4_npu_ops.layout.out_cache_loc import OutCacheLoc
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.layout.verify_step import VerifyStep
from dsv4_npu_ops.ops.caller_errors import TABLES, caller_errors, field_names
from dsv4_npu_ops.ops.compress_metadata import empty_metadata
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only
from dsv4_npu_ops.ops.reserved import check_reserved
from dsv4_npu_ops.ops.step_sizes import check_rows, host_num_tokens, verify_form
from dsv4_npu_ops.ops.verify_bundle import empty_slots

_step = torch.ops.dsv4_npu_ops.verify_step.default
_step_out = torch.ops.dsv4_npu_ops.verify_step.out


@caller_errors(TABLES, out=field_names("out", VerifyStep))
def build_verify_step(
    tables: RequestTables,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    num_draft_tokens: int | Tensor,
    rope_cos: Tensor,
    rope_sin: Tensor,
    *,
    num_tokens: int | None = None,
    max_seq_len: int | None = None,
    out: VerifyStep | None = None,
) -> VerifyStep:
    """Slots, metadata and RoPE rows of a target verify, in one launch.

    The results equal those of ``flatten_verify_bundle`` (without host lengths), ``build_compress_metadata_verify`` and
    ``rope_gather`` at ``positions_c4`` and at ``positions_c128``.

    Args:
        tables: request tables, read only.
        req_pool_indices: ``[B]`` int32 or int64 rows of the tables, on their device.
        seq_lens: ``[B]`` int32 or int64 committed lengths L, never with the drafts. A row of length 0 is padding.
        num_draft_tokens: n of this very batch for every row, or ``[B]`` int32 or int64 widths, one a row.
        rope_cos, rope_sin: float32 ``[max_pos, D]`` tables of the compressed layers' base, contiguous, same device.
        num_tokens, max_seq_len: as in ``build_compress_metadata_verify``.
        out: buffers that are overwritten to their last entry (``VerifyStep.empty``); nothing is allocated.

    Returns:
        ``out``, or a new ``VerifyStep``.

    Raises:
        ValueError: as in ``flatten_verify_bundle`` and ``build_compress_metadata_verify``. Nothing was written.
        IndexError: on a CPU, a completed group's position outside the RoPE tables. Nothing was written.

    Source: docs/spec.md, one op for a verify step.
    """
    form, width, widths = verify_form("verify_step", num_draft_tokens)
    check_rows("verify_step", req_pool_indices=req_pool_indices, seq_lens=seq_lens)
    check_reserved("verify_step", tables, req_pool_indices, seq_lens, widths, form, width)
    context = tables.layout.max_context_len
    length = context if max_seq_len is None else max_seq_len
    rows = (*tables.in_order(), req_pool_indices, seq_lens, widths, rope_cos, rope_sin, width)
    layout = (tables.page_size, tables.sliding_window, context)
    if out is None:
        if num_tokens is None:
            num_tokens = host_num_tokens("verify_step", seq_lens, None, widths, form, width)
        results = _step(*rows, num_tokens, length, *layout)
        return VerifyStep(OutCacheLoc(*results[:6]), CompressMetadata(*results[6:20]), *results[20:])
    loc, metadata = out.out_cache_loc, out.metadata
    _step_out(
        *rows,
        length,
        *layout,
        out_full_loc=loc.out_full_loc,
        out_swa_loc=loc.out_swa_loc,
        out_c4_loc=loc.out_c4_loc,
        out_c128_loc=loc.out_c128_loc,
        out_c4_state_loc=loc.out_c4_state_loc,
        out_c128_state_loc=loc.out_c128_state_loc,
        positions_c4=metadata.positions_c4,
        positions_c128=metadata.positions_c128,
        c4_loc=metadata.c4_loc,
        c128_loc=metadata.c128_loc,
        start_pos=metadata.start_pos,
        seqused=metadata.seqused,
        cu_seqlens=metadata.cu_seqlens,
        positions=metadata.positions,
        kv_lens=metadata.kv_lens,
        swa_page_table=metadata.swa_page_table,
        c4_page_table=metadata.c4_page_table,
        c128_page_table=metadata.c128_page_table,
        c4_state_page_table=metadata.c4_state_page_table,
        c128_state_page_table=metadata.c128_state_page_table,
        c4_cos=out.c4_cos,
        c4_sin=out.c4_sin,
        c128_cos=out.c128_cos,
        c128_sin=out.c128_sin,
    )
    return out


@fake_kernel("verify_step")
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
    rope_cos: Tensor,
    rope_sin: Tensor,
    width: int,
    num_tokens: int,
    max_seq_len: int,
    page_size: int,
    window: int,
    max_context_len: int,
) -> tuple[Tensor, ...]:
    tables = (full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table)
    metadata = empty_metadata(req_pool_indices, tables[1:], num_tokens, max_seq_len, page_size)
    c4_groups, c128_groups = metadata[0].shape[0], metadata[1].shape[0]
    slots = empty_slots(req_pool_indices, tables, num_tokens, c4_groups, c128_groups)
    rope = (rope_cos.new_empty((n, rope_cos.shape[1])) for n in (c4_groups, c4_groups, c128_groups, c128_groups))
    return (*slots, *metadata, *rope)


fake_kernel("verify_step.out")(writes_only)

"""Compress metadata: wrappers and fake kernels of ``torch.ops.dsv4_npu_ops.compress_metadata``."""

import torch
from torch import Tensor

from dsv4_npu_ops.layout.capacity import group_capacity, page_columns
from dsv4_npu_ops.layout.compress_metadata import PAGE_TABLE_POOLS, CompressMetadata
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.caller_errors import TABLES, caller_errors, field_names
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only
from dsv4_npu_ops.ops.reserved import check_reserved
from dsv4_npu_ops.ops.step_sizes import FORM_DECODE, FORM_PREFILL, check_rows, host_num_tokens, verify_form

_metadata = torch.ops.dsv4_npu_ops.compress_metadata.default
_metadata_out = torch.ops.dsv4_npu_ops.compress_metadata.out
_caller_errors = caller_errors(TABLES, out=field_names("out", CompressMetadata))


@_caller_errors
def build_compress_metadata_prefill(
    tables: RequestTables,
    req_pool_indices: Tensor,
    prefix_lens: Tensor,
    seq_lens: Tensor,
    *,
    num_tokens: int | None = None,
    max_seq_len: int | None = None,
    out: CompressMetadata | None = None,
) -> CompressMetadata:
    """Metadata of a prefill step, chunked or not, in one launch.

    Args:
        tables: request tables, read only.
        req_pool_indices: ``[B]`` int32 or int64 rows of the tables, on their device.
        prefix_lens: ``[B]`` int32 or int64, tokens in the cache before the step.
        seq_lens: ``[B]`` int32 or int64, tokens after the step. A row with ``seq_len == prefix_len`` is padding.
        num_tokens: T, the step's tokens, or more; default the sum of the new tokens, which needs lengths on a CPU.
            Ignored with ``out``, whose ``positions`` has T entries.
        max_seq_len: longest ``seq_len`` that the page tables must cover; default the layout's ``max_context_len``.
        out: buffers that are overwritten to their last entry (``CompressMetadata.empty``); nothing is allocated.

    Returns:
        ``out``, or a new ``CompressMetadata``.

    Raises:
        ValueError: wrong dtype, shape, device or strides; a buffer too small; on a CPU also a negative or decreasing
            length, one beyond ``max_seq_len`` or ``max_context_len``, or an unknown request. Nothing was written.

    Source: docs/spec.md, compress metadata.
    """
    check_rows("compress_metadata", prefix_lens=prefix_lens)
    return _build(tables, req_pool_indices, seq_lens, prefix_lens, None, FORM_PREFILL, 0, num_tokens, max_seq_len, out)


@_caller_errors
def build_compress_metadata_decode(
    tables: RequestTables,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    *,
    max_seq_len: int | None = None,
    out: CompressMetadata | None = None,
) -> CompressMetadata:
    """Metadata of a decode step: one new token a row, at ``seq_len - 1``, in one launch.

    Args:
        tables: request tables, read only.
        req_pool_indices: ``[B]`` int32 or int64 rows of the tables, on their device.
        seq_lens: ``[B]`` int32 or int64, tokens after the step. A row of length 0 is padding, and still has a token.
        max_seq_len, out: as in ``build_compress_metadata_prefill``.

    Returns:
        ``out``, or a new ``CompressMetadata`` with T = B.

    Raises:
        ValueError: as in ``build_compress_metadata_prefill``.

    Source: docs/spec.md, compress metadata.
    """
    return _build(tables, req_pool_indices, seq_lens, None, None, FORM_DECODE, 0, None, max_seq_len, out)


@_caller_errors
def build_compress_metadata_verify(
    tables: RequestTables,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    num_draft_tokens: int | Tensor,
    *,
    num_tokens: int | None = None,
    max_seq_len: int | None = None,
    out: CompressMetadata | None = None,
) -> CompressMetadata:
    """Metadata of a target verify (or draft extend), in one launch.

    Args:
        tables: request tables, read only.
        req_pool_indices: ``[B]`` int32 or int64 rows of the tables, on their device.
        seq_lens: ``[B]`` int32 or int64 committed lengths L, without the drafts. A row of length 0 is padding.
        num_draft_tokens: n inputs of every row at positions L .. L + n - 1, or ``[B]`` int32 or int64 widths, one a
            row (ragged; a width of 0 makes the row padding). A padding row still owns its n entries of the tokens.
        num_tokens: T, the step's tokens, or more; default B * n, or the sum of the widths, which needs them on a CPU.
            Ignored with ``out``, whose ``positions`` has T entries.
        max_seq_len, out: as in ``build_compress_metadata_prefill``; the drafts count.

    Returns:
        ``out``, or a new ``CompressMetadata``.

    Raises:
        ValueError: as in ``build_compress_metadata_prefill``.

    Source: docs/spec.md, compress metadata.
    """
    form, width, widths = verify_form("compress_metadata", num_draft_tokens)
    return _build(tables, req_pool_indices, seq_lens, None, widths, form, width, num_tokens, max_seq_len, out)


def _build(
    tables: RequestTables,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    prefix_lens: Tensor | None,
    widths: Tensor | None,
    form: int,
    width: int,
    num_tokens: int | None,
    max_seq_len: int | None,
    out: CompressMetadata | None,
) -> CompressMetadata:
    check_rows("compress_metadata", req_pool_indices=req_pool_indices, seq_lens=seq_lens)
    operands = prefix_lens if form == FORM_PREFILL else widths
    check_reserved("compress_metadata", tables, req_pool_indices, seq_lens, operands, form, width)
    context = tables.layout.max_context_len
    length = context if max_seq_len is None else max_seq_len
    rows = (
        tables.swa,
        tables.c4,
        tables.c128,
        tables.c4_state,
        tables.c128_state,
        req_pool_indices,
        seq_lens,
        prefix_lens,
        widths,
        form,
        width,
    )
    if out is None:
        if num_tokens is None:
            num_tokens = host_num_tokens("compress_metadata", seq_lens, prefix_lens, widths, form, width)
        return CompressMetadata(*_metadata(*rows, num_tokens, length, tables.page_size, tables.sliding_window, context))
    _metadata_out(
        *rows,
        length,
        tables.page_size,
        tables.sliding_window,
        context,
        positions_c4=out.positions_c4,
        positions_c128=out.positions_c128,
        c4_loc=out.c4_loc,
        c128_loc=out.c128_loc,
        start_pos=out.start_pos,
        seqused=out.seqused,
        cu_seqlens=out.cu_seqlens,
        positions=out.positions,
        kv_lens=out.kv_lens,
        swa_page_table=out.swa_page_table,
        c4_page_table=out.c4_page_table,
        c128_page_table=out.c128_page_table,
        c4_state_page_table=out.c4_state_page_table,
        c128_state_page_table=out.c128_state_page_table,
    )
    return out


def empty_metadata(
    req_pool_indices: Tensor, tables: tuple[Tensor, ...], num_tokens: int, max_seq_len: int, page_size: int
) -> tuple[Tensor, ...]:
    """The fourteen outputs with their sizes and no values, for fake kernels. ``tables``: those of PAGE_TABLE_POOLS."""
    exists = {pool: table.shape[1] != 0 for pool, table in zip(PAGE_TABLE_POOLS, tables, strict=True)}
    num_rows = req_pool_indices.shape[0]

    def buffer(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return req_pool_indices.new_empty(shape, dtype=dtype)

    c4_groups, c128_groups = (group_capacity(num_tokens, num_rows, ratio) for ratio in (4, 128))
    return (
        buffer(c4_groups, dtype=torch.int64),
        buffer(c128_groups, dtype=torch.int64),
        buffer(c4_groups if exists["c4"] else 0),
        buffer(c128_groups if exists["c128"] else 0),
        buffer(num_rows),
        buffer(num_rows),
        buffer(num_rows + 1),
        buffer(num_tokens, dtype=torch.int64),
        buffer(num_rows),
        *(
            buffer(num_rows, page_columns(max_seq_len, pool, page_size) if exists[pool] else 0)
            for pool in PAGE_TABLE_POOLS
        ),
    )


@fake_kernel("compress_metadata")
def _(
    swa_table: Tensor,
    c4_table: Tensor,
    c128_table: Tensor,
    c4_state_table: Tensor,
    c128_state_table: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    prefix_lens: Tensor | None,
    num_draft_tokens: Tensor | None,
    form: int,
    width: int,
    num_tokens: int,
    max_seq_len: int,
    page_size: int,
    window: int,
    max_context_len: int,
) -> tuple[Tensor, ...]:
    tables = (swa_table, c4_table, c128_table, c4_state_table, c128_state_table)
    return empty_metadata(req_pool_indices, tables, num_tokens, max_seq_len, page_size)


fake_kernel("compress_metadata.out")(writes_only)

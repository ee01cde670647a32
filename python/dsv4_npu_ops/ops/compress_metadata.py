"""Compress metadata: a step's positions, slots of groups, row vectors and page tables, by the op of ``build_step``."""

from dataclasses import fields

from torch import Tensor

from dsv4_npu_ops.layout.buffers import Buffer
from dsv4_npu_ops.layout.compress_metadata import CompressMetadata
from dsv4_npu_ops.layout.step_rows import StepRows
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.caller_errors import TABLES, caller_errors
from dsv4_npu_ops.ops.step import ResultFields, fill_step
from dsv4_npu_ops.ops.step_sizes import host_num_tokens

METADATA_FIELDS: dict[str, str] = {
    {"c4_loc": "out_c4_loc", "c128_loc": "out_c128_loc"}.get(field.name, field.name): field.name
    for field in fields(CompressMetadata)
}
"""Attributes of the metadata by the names of the fields of a step, in their order."""

_fields = ResultFields(METADATA_FIELDS)
_caller_errors = caller_errors(TABLES, out=_fields.names)


@_caller_errors
def build_compress_metadata_prefill(
    tables: RequestTables,
    req_pool_indices: Tensor | None,
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
        req_pool_indices: ``[B]`` int32 or int64 rows of the tables, on their device; None: row ``i`` of the batch is
            row ``i`` of the tables.
        prefix_lens: ``[B]`` int32 or int64, tokens in the cache before the step.
        seq_lens: ``[B]`` int32 or int64, tokens after the step. A row with ``seq_len == prefix_len`` is padding.
        num_tokens: T, the step's tokens, or more; default the sum of the new tokens, which needs lengths on a CPU.
            Ignored with ``out``, whose ``positions`` has T entries.
        max_seq_len: longest ``seq_len`` that the page tables must cover; default the tables' ``max_context_len``.
            Ignored with ``out``, whose page tables have columns of their own.
        out: buffers that are overwritten to their last entry (``CompressMetadata.empty``); nothing is allocated.

    Returns:
        ``out``, or a new ``CompressMetadata``.

    Raises:
        ValueError: as ``build_step``. Nothing was written.

    Source: docs/spec.md, a step.
    """
    return _build(tables, req_pool_indices, StepRows.prefill(prefix_lens, seq_lens), num_tokens, max_seq_len, out)


@_caller_errors
def build_compress_metadata_decode(
    tables: RequestTables,
    req_pool_indices: Tensor | None,
    seq_lens: Tensor,
    *,
    max_seq_len: int | None = None,
    out: CompressMetadata | None = None,
) -> CompressMetadata:
    """Metadata of a decode step: one new token a row, at ``seq_len - 1``, in one launch.

    Args:
        tables, req_pool_indices: as in ``build_compress_metadata_prefill``.
        seq_lens: ``[B]`` int32 or int64, tokens after the step. A row of length 0 is padding, and still has a token.
        max_seq_len, out: as in ``build_compress_metadata_prefill``.

    Returns:
        ``out``, or a new ``CompressMetadata`` with T = B.

    Raises:
        ValueError: as ``build_step``. Nothing was written.

    Source: docs/spec.md, a step.
    """
    return _build(tables, req_pool_indices, StepRows.final(seq_lens), None, max_seq_len, out)


@_caller_errors
def build_compress_metadata_verify(
    tables: RequestTables,
    req_pool_indices: Tensor | None,
    seq_lens: Tensor,
    num_draft_tokens: int | Tensor,
    *,
    num_tokens: int | None = None,
    max_seq_len: int | None = None,
    out: CompressMetadata | None = None,
) -> CompressMetadata:
    """Metadata of a target verify (or draft extend), in one launch.

    Args:
        tables, req_pool_indices: as in ``build_compress_metadata_prefill``.
        seq_lens: ``[B]`` int32 or int64 committed lengths L, without the drafts. A row of length 0 is padding.
        num_draft_tokens: n inputs of every row at positions L .. L + n - 1, or ``[B]`` int32 or int64 widths, one a
            row (ragged; a width of 0 makes the row padding). A padding row still owns its n entries of the tokens.
        num_tokens: T, the step's tokens, or more; default B * n, or the sum of the widths, which needs them on a CPU.
            Ignored with ``out``, whose ``positions`` has T entries.
        max_seq_len, out: as in ``build_compress_metadata_prefill``; the drafts count.

    Returns:
        ``out``, or a new ``CompressMetadata``.

    Raises:
        ValueError: as ``build_step``. Nothing was written.

    Source: docs/spec.md, a step.
    """
    rows = StepRows.verify(seq_lens, num_draft_tokens)
    return _build(tables, req_pool_indices, rows, num_tokens, max_seq_len, out)


def _build(
    tables: RequestTables,
    req_pool_indices: Tensor | None,
    rows: StepRows,
    num_tokens: int | None,
    max_seq_len: int | None,
    out: CompressMetadata | None,
) -> CompressMetadata:
    if out is None:
        if num_tokens is None:
            num_tokens = host_num_tokens(rows)
        sizes = rows.seq_lens.shape[0], num_tokens, max_seq_len
        return CompressMetadata(*_fields.make(tables, rows, sizes, _buffers, req_pool_indices))
    fill_step(tables, rows, *_fields.take(out, tables), req_pool_indices)
    return out


def _buffers(tables: RequestTables, num_rows: int, num_tokens: int, max_seq_len: int | None) -> dict[str, Buffer]:
    made = CompressMetadata.buffers(tables, num_rows, num_tokens, max_seq_len).values()
    return dict(zip(METADATA_FIELDS, made, strict=True))

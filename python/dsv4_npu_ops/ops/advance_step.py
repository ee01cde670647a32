"""From accepted lengths to the next step: wrapper and fake kernels of ``torch.ops.dsv4_npu_ops.advance_step``."""

from operator import index

import torch
from torch import Tensor

from dsv4_npu_ops.layout.advanced_step import AdvancedStep
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.caller_errors import TABLES, caller_errors, field_names
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only
from dsv4_npu_ops.ops.step_sizes import check_rows

_advance = torch.ops.dsv4_npu_ops.advance_step.default
_advance_out = torch.ops.dsv4_npu_ops.advance_step.out
# What the op calls those whose names its inputs have.
_OUT = {
    "next_seq_lens": "out.seq_lens",
    "next_token_ids": "out.token_ids",
    "next_hidden": "out.hidden_states",
    "seq_lens": "seq_lens",
    "token_ids": "token_ids",
    "hidden_states": "hidden_states",
}


@caller_errors(TABLES | {"width": "num_draft_tokens"}, out=field_names("out", AdvancedStep) | _OUT)
def advance_step(
    tables: RequestTables,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    accepted_lens: Tensor,
    token_ids: Tensor,
    *,
    num_draft_tokens: int | None = None,
    cu_seqlens: Tensor | None = None,
    hidden_states: Tensor | None = None,
    out: AdvancedStep | None = None,
) -> AdvancedStep:
    """Lengths, newest tokens and first draft step after a target verify, in one launch without host knowledge.

    An engine that schedules ahead calls it on what the verify left on the device and launches the next step from the
    results, before its host has read any of them.

    Args:
        tables: request tables, read only.
        req_pool_indices: ``[B]`` int32 or int64 rows of the tables, on their device.
        seq_lens: ``[B]`` int32 or int64 committed lengths L before the verify. A row of length 0 is padding.
        accepted_lens: ``[B]`` int32 or int64, a: 1 to the row's width; 0 for a row that sat out.
        token_ids: int32 or int64 ``[T]``, or ``[B, n]`` for rows of equal width: the token that the target sampled
            after each of the verify's inputs.
        num_draft_tokens: n, the width of every row; default the second size of ``token_ids``. Not with ``cu_seqlens``.
        cu_seqlens: int32 ``[B + 1]``: row i's tokens lie at ``[cu_seqlens[i], cu_seqlens[i + 1])``, for ragged widths.
        hidden_states: ``[T, ...]`` of float32, float16, bfloat16 or float64, contiguous, a row for each token; moved
            as bits.
        out: buffers that are overwritten (``AdvancedStep.empty``); nothing is allocated. ``out.seq_lens`` may be
            ``seq_lens`` itself, as the buffers of a captured graph need it: lengths then change in place.

    Returns:
        ``out``, or a new ``AdvancedStep``.

    Raises:
        ValueError: wrong dtype, shape, device or strides; on a CPU also a negative length, tokens beyond
            ``max_context_len``, an accepted length outside ``[0, width]``, ``cu_seqlens`` that are no intervals of the
            tokens, an unknown request. Nothing was written. On a device such a row is padding and an error word is set.

    Source: docs/spec.md, advance step.
    """
    check_rows("advance_step", req_pool_indices=req_pool_indices, seq_lens=seq_lens)
    width = _width(token_ids, num_draft_tokens, cu_seqlens)
    rows = (tables.full, tables.swa, req_pool_indices, seq_lens, accepted_lens, token_ids, cu_seqlens, hidden_states)
    context = tables.layout.max_context_len
    if out is None:
        *results, hidden = _advance(*rows, width, context)
        advanced = AdvancedStep(*results)
        advanced.hidden_states = None if hidden_states is None else hidden
        return advanced
    _advance_out(
        *rows,
        width,
        context,
        next_seq_lens=out.seq_lens,
        extend_lens=out.extend_lens,
        next_token_ids=out.token_ids,
        positions=out.positions,
        out_full_loc=out.out_full_loc,
        out_swa_loc=out.out_swa_loc,
        sampled_index=out.sampled_index,
        next_hidden=out.hidden_states,
    )
    return out


def _width(token_ids: Tensor, num_draft_tokens: int | None, cu_seqlens: Tensor | None) -> int:
    two_dimensional = token_ids.dim() == 2
    if cu_seqlens is not None:
        if num_draft_tokens is not None:
            raise ValueError(f"advance_step: num_draft_tokens is {num_draft_tokens}, expected None beside cu_seqlens")
        return token_ids.shape[1] if two_dimensional else 0
    if num_draft_tokens is None:
        if not two_dimensional:
            raise ValueError(
                f"advance_step: num_draft_tokens and cu_seqlens are None, expected one of them for token_ids of shape "
                f"{list(token_ids.shape)}"
            )
        return token_ids.shape[1]
    try:
        return index(num_draft_tokens)
    except TypeError:
        raise ValueError(f"advance_step: num_draft_tokens is {num_draft_tokens!r}, expected an integer") from None


@fake_kernel("advance_step")
def _(
    full_table: Tensor,
    swa_table: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    accepted_lens: Tensor,
    token_ids: Tensor,
    cu_seqlens: Tensor | None,
    hidden_states: Tensor | None,
    width: int,
    max_context_len: int,
) -> tuple[Tensor, ...]:
    rows = req_pool_indices.shape[0]

    def vector(dtype: torch.dtype, exists: bool = True) -> Tensor:
        return req_pool_indices.new_empty((rows if exists else 0,), dtype=dtype)

    return (
        vector(seq_lens.dtype),
        vector(torch.int32),
        vector(token_ids.dtype),
        vector(torch.int64),
        vector(torch.int32, full_table.shape[1] != 0),
        vector(torch.int32, swa_table.shape[1] != 0),
        vector(torch.int64),
        req_pool_indices.new_empty((0,), dtype=torch.float32)
        if hidden_states is None
        else hidden_states.new_empty((rows, *hidden_states.shape[1:])),
    )


fake_kernel("advance_step.out")(writes_only)

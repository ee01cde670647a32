"""From accepted lengths to the next step: wrapper and fake kernel of ``torch.ops.dsv4_npu_ops.advance_step``."""

from operator import index

import torch
from torch import Tensor

from dsv4_npu_ops.layout.advanced_step import AdvancedStep
from dsv4_npu_ops.layout.step_rows import check_rows
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.caller_errors import TABLES, caller_errors, field_names
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only

_advance = torch.ops.dsv4_npu_ops.advance_step.default

_OUT = field_names("out", AdvancedStep) | {
    "next_seq_lens": "out.seq_lens",
    "next_token_ids": "out.token_ids",
    "next_hidden_states": "out.hidden_states",
}
for _input in ("seq_lens", "token_ids", "hidden_states"):
    del _OUT[_input]

_NO_SLOTS = (0, 0)


@caller_errors(TABLES | {"width": "num_draft_tokens"}, out=_OUT)
def advance_step(
    tables: RequestTables,
    req_pool_indices: Tensor | None,
    seq_lens: Tensor,
    accepted_lens: Tensor | None,
    token_ids: Tensor,
    *,
    num_draft_tokens: int | Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    backup_tokens: Tensor | None = None,
    hidden_states: Tensor | None = None,
    lengths_are_final: bool = False,
    dummy_slots: tuple[int, int] = _NO_SLOTS,
    out: AdvancedStep | None = None,
) -> AdvancedStep:
    """Lengths, newest tokens and first draft step after a target verify, in one launch without host knowledge.

    An engine that schedules ahead calls it on what the verify left on the device and launches the next step from the
    results, before its host has read any of them. What was accepted is given as lengths, or as samples.

    Args:
        tables: request tables, read only.
        req_pool_indices: ``[B]`` int32 or int64 rows of the tables, on their device; None: row i is row i of the
            tables.
        seq_lens: ``[B]`` int32 or int64 committed lengths L before the verify. A row of length 0 is padding.
        accepted_lens: ``[B]`` int32 or int64, a: 1 to the row's width; 0 for a row that sat out. None: ``token_ids``
            are samples, whose valid ones are counted.
        token_ids: with ``accepted_lens`` int32 or int64 ``[T]``, or ``[B, n]`` for rows of equal width: the token that
            the target sampled after each of the verify's inputs. Without, ``[B, n]`` samples: the accepted tokens of
            each row and the one after them, then negative numbers; n is the width of every row unless ``cu_seqlens``
            says it.
        num_draft_tokens: n, the width of every row; default the second size of ``token_ids``. Not with ``cu_seqlens``.
            With samples it may be a tensor ``[B]`` int32 or int64 of the guesses among the inputs of each row, which
            are the last ones: a row with guesses rejects ``num_draft_tokens + 1`` less its samples, one without, such
            as a prefill chunk, keeps all of its inputs.
        cu_seqlens: int32 ``[B + 1]``: row i's inputs are ``[cu_seqlens[i], cu_seqlens[i + 1])``, for ragged widths.
        backup_tokens: ``[B]`` like ``token_ids``: newest tokens of rows without a sample; 0 without.
        hidden_states: ``[T, ...]`` of float32, float16, bfloat16 or float64, contiguous, a row for each input; moved
            as bits.
        lengths_are_final: ``seq_lens`` count the step's tokens: L is the length less the row's width, and a row whose L
            is 0 is a first chunk and no padding.
        dummy_slots: what stands for no slot in full and in swa.
        out: buffers that are overwritten (``AdvancedStep.empty``), each optional; nothing is allocated.
            ``out.seq_lens`` may be ``seq_lens`` itself, as the buffers of a captured graph need it: lengths then change
            in place.

    Returns:
        ``out``, or a new ``AdvancedStep``.

    Raises:
        ValueError: wrong dtype, shape, device or strides; on a CPU also a negative length, tokens beyond
            ``max_context_len``, more accepted tokens or samples than the row was judged for, ``cu_seqlens`` that are no
            intervals of the tokens, an unknown request. Nothing was written. On a device such a row is padding and an
            error word is set.

    Source: docs/spec.md, advance step.
    """
    guesses = None
    if isinstance(num_draft_tokens, Tensor):
        guesses, num_draft_tokens = num_draft_tokens, None
    width = _width(token_ids, num_draft_tokens, cu_seqlens)
    if out is None:
        check_rows("advance_step", seq_lens=seq_lens)
        out = AdvancedStep.empty(
            tables,
            seq_lens.shape[0],
            lengths_dtype=seq_lens.dtype,
            token_dtype=token_ids.dtype,
            hidden_shape=None if hidden_states is None else tuple(hidden_states.shape[1:]),
            hidden_dtype=torch.bfloat16 if hidden_states is None else hidden_states.dtype,
            counts=accepted_lens is None,
        )
    # An argument that is not passed costs a call nothing.
    unusual = (lengths_are_final, dummy_slots) if lengths_are_final or dummy_slots != _NO_SLOTS else ()
    _advance(
        *tables.op_token_pools,
        req_pool_indices,
        seq_lens,
        accepted_lens,
        token_ids,
        cu_seqlens,
        guesses,
        backup_tokens,
        hidden_states,
        width,
        tables.max_context_len,
        out.seq_lens,
        out.extend_lens,
        out.token_ids,
        out.positions,
        # A pool that does not exist has no entries.
        out.out_full_loc if "full" in tables.pools else None,
        out.out_swa_loc if "swa" in tables.pools else None,
        out.sampled_index,
        out.hidden_states,
        out.valid_counts,
        out.rejected_lens,
        *unusual,
    )
    return out


def _width(token_ids: Tensor, num_draft_tokens: int | None, cu_seqlens: Tensor | None) -> int:
    if cu_seqlens is not None:
        if num_draft_tokens is not None:
            raise ValueError(f"advance_step: num_draft_tokens is {num_draft_tokens}, expected None beside cu_seqlens")
        return token_ids.shape[1] if token_ids.dim() == 2 else 0
    if num_draft_tokens is None:
        if token_ids.dim() != 2:
            raise ValueError(
                f"advance_step: num_draft_tokens and cu_seqlens are None, expected one of them for token_ids of shape "
                f"{list(token_ids.shape)}"
            )
        return token_ids.shape[1]
    try:
        return index(num_draft_tokens)
    except TypeError:
        raise ValueError(f"advance_step: num_draft_tokens is {num_draft_tokens!r}, expected an integer") from None


fake_kernel("advance_step")(writes_only)


@fake_kernel("advance_step.samples")
def _(seq_lens: Tensor, token_ids: Tensor, *arguments: object, **named: object) -> list[Tensor]:
    rows = seq_lens.shape[0]
    dtypes = token_ids.dtype, torch.int32, torch.int64, torch.int32
    return [torch.empty(rows, dtype=dtype, device=seq_lens.device) for dtype in dtypes]

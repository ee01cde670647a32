"""All steps of a multi-step draft: wrapper and fake kernels of ``torch.ops.dsv4_npu_ops.draft_steps``."""

import torch
from torch import Tensor

from dsv4_npu_ops.layout.draft_steps import DraftSteps
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.caller_errors import caller_errors, field_names
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only
from dsv4_npu_ops.ops.reserved import check_reserved
from dsv4_npu_ops.ops.step_sizes import FORM_VERIFY, check_rows

_steps = torch.ops.dsv4_npu_ops.draft_steps.default
_steps_out = torch.ops.dsv4_npu_ops.draft_steps.out

DRAFT_POOLS = ("full", "swa")
"""Pools whose slots a draft step may take: those with a slot for each raw token that is not compressor state."""


@caller_errors({"table": "tables"}, out=field_names("out", DraftSteps))
def build_draft_steps(
    seq_lens: Tensor,
    rope_cos: Tensor,
    rope_sin: Tensor,
    num_steps: int,
    *,
    topk: int = 1,
    reservation: Tensor | None = None,
    tables: RequestTables | None = None,
    req_pool_indices: Tensor | None = None,
    pool: str = "swa",
    max_context_len: int | None = None,
    num_entries: int | None = None,
    out: DraftSteps | None = None,
) -> DraftSteps:
    """Slots, positions, lengths and RoPE rows of every draft step of a speculative round, in one launch.

    Draft k of request i in step j is at position ``seq_lens[i] + j``. Its slot comes from ``reservation``, or with topk
    1 from the request's row of a table at that position.

    Args:
        seq_lens: ``[B]`` int32 or int64 committed lengths L. A row of length 0 is padding: all its drafts are dummies.
        rope_cos, rope_sin: ``[max_pos, D]`` tables of the MTP layer's base, float32, float16 or bfloat16, contiguous,
            same device; max_pos is at least ``max_context_len``.
        num_steps: S.
        topk: drafts of a request in each step.
        reservation: int32 slots, laid out (request, topk, step): ``[B * topk * S]``, or longer. A negative one is
            nobody's: that draft has slot 0, and its position and length as usual.
        tables, req_pool_indices, pool: without a reservation, the tables, ``[B]`` int32 or int64 rows of them, and
            which pool's slots the drafts take: ``swa`` or ``full``. Read only.
        max_context_len: raw tokens that a request can hold; drafts at or beyond it are dummies. Default that of the
            tables, else max_pos.
        num_entries: N, entries of a step, at least B * topk, which is the default; those behind are dummies.
        out: buffers that are overwritten to their last entry (``DraftSteps.empty``); nothing is allocated, and
            ``num_entries`` is ignored.

    Returns:
        ``out``, or a new ``DraftSteps``.

    Raises:
        ValueError: wrong dtype, shape, device or strides; a buffer or reservation too small; topk above 1 without a
            reservation; on a CPU also a length below 0 or above ``max_context_len``, or an unknown request. Nothing
            was written. On a device a bad row is padding and the error words say so.

    Source: docs/spec.md, draft steps.
    """
    check_rows("draft_steps", seq_lens=seq_lens)
    table = None
    if tables is not None:
        if pool not in DRAFT_POOLS:
            raise ValueError(f"draft_steps: pool is {pool!r}, expected one of {', '.join(DRAFT_POOLS)}")
        if reservation is None:
            table = getattr(tables, pool)
            if tables.check_reserved and req_pool_indices is not None:
                slots = tables.select(pool)
                check_reserved("draft_steps", slots, req_pool_indices, seq_lens, None, FORM_VERIFY, num_steps)
    if max_context_len is None:
        max_context_len = tables.layout.max_context_len if tables is not None else rope_cos.shape[0]
    requests = req_pool_indices if table is not None else None
    inputs = (seq_lens, reservation, requests, table, rope_cos, rope_sin, topk, num_steps)
    if out is None:
        entries = seq_lens.shape[0] * topk if num_entries is None else num_entries
        return DraftSteps(*_steps(*inputs, entries, max_context_len))
    _steps_out(
        *inputs,
        max_context_len,
        slots=out.slots,
        positions=out.positions,
        kv_lens=out.kv_lens,
        cos=out.cos,
        sin=out.sin,
    )
    return out


@fake_kernel("draft_steps")
def _(
    seq_lens: Tensor,
    reservation: Tensor | None,
    req_pool_indices: Tensor | None,
    table: Tensor | None,
    rope_cos: Tensor,
    rope_sin: Tensor,
    topk: int,
    num_steps: int,
    num_entries: int,
    max_context_len: int,
) -> tuple[Tensor, ...]:
    shape = (num_steps, num_entries)
    rope = (*shape, rope_cos.shape[1])
    return (
        seq_lens.new_empty(shape, dtype=torch.int32),
        seq_lens.new_empty(shape, dtype=torch.int64),
        seq_lens.new_empty(shape, dtype=torch.int32),
        rope_cos.new_empty(rope),
        rope_cos.new_empty(rope),
    )


fake_kernel("draft_steps.out")(writes_only)

"""All steps of a multi-step draft: wrappers and fake kernels of ``torch.ops.dsv4_npu_ops.draft_steps``."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dsv4_npu_ops.layout.draft_steps import DraftSteps
from dsv4_npu_ops.layout.kv_layout import POOLS
from dsv4_npu_ops.layout.pool_address import NO_ADDRESS, op_pools
from dsv4_npu_ops.layout.step_rows import StepRows, check_rows
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.bound_call import BoundCall
from dsv4_npu_ops.ops.caller_errors import caller_errors, field_names
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only
from dsv4_npu_ops.ops.reserved import check_reserved

_steps = torch.ops.dsv4_npu_ops.draft_steps.default
_NO_POOLS = op_pools([NO_ADDRESS] * len(POOLS))

DRAFT_POOLS = ("full", "swa")
"""Pools whose slots a draft step may take: those with a slot for each raw token that is not compressor state."""


@caller_errors(out=field_names("out", DraftSteps))
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
    dummy_slot: int = 0,
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
        reservation: int32 slots, laid out (request, topk, step): ``[B * topk * S]``, or longer. 0 or less is nobody's.
        tables, req_pool_indices, pool: without a reservation, the tables, ``[B]`` int32 or int64 rows of them (None:
            row i is request i), and which pool's slots the drafts take: ``swa`` or ``full``. Read only.
        max_context_len: raw tokens that a request can hold; drafts at or beyond it are dummies. Default that of the
            tables, else max_pos.
        num_entries: N, entries of a step, at least B * topk, which is the default; those behind are dummies.
        dummy_slot: what stands for no slot.
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
    if tables is not None and pool not in DRAFT_POOLS:
        raise ValueError(f"draft_steps: pool is {pool!r}, expected one of {', '.join(DRAFT_POOLS)}")
    if max_context_len is None:
        max_context_len = tables.max_context_len if tables is not None else rope_cos.shape[0]
    source = tables if reservation is None else None
    if source is not None and source.check_reserved:
        check_reserved("draft_steps", source, StepRows.verify(seq_lens, num_steps), req_pool_indices, (pool,))
    if out is None:
        if rope_cos.dim() != 2:
            raise ValueError(f"draft_steps: rope_cos has shape {list(rope_cos.shape)}, expected 2 dimensions")
        out = DraftSteps.empty(
            num_steps,
            seq_lens.shape[0] * topk if num_entries is None else num_entries,
            rope_cos.shape[1],
            dtype=rope_cos.dtype,
            device=seq_lens.device,
        )
    _steps(
        *(_NO_POOLS if source is None else source.op_token_pools),
        None if source is None else req_pool_indices,
        reservation,
        seq_lens,
        rope_cos,
        rope_sin,
        -1 if source is None else POOLS.index(pool),
        topk,
        num_steps,
        max_context_len,
        dummy_slot,
        out.slots,
        out.positions,
        out.kv_lens,
        out.cos,
        out.sin,
    )
    return out


class DraftStepsApart:
    """All single-token passes of a round into buffers of each step, again and again, in one launch.

    For an engine with a table of blocks that keeps a step's buffers apart and counts keys from lengths of its own.
    Request i is row i of the table, and its draft in step j stands j + 1 behind its newest token.

    Args:
        block_table: ``[rows, columns]`` int32 or int64, with room for ``max_context_len``; 0 or less is no block.
        last_positions: ``[B]`` int32 or int64 positions of the newest tokens; -1 is padding, and at
            ``max_context_len`` or beyond there are only dummies.
        seq_lens: ``[B]`` int32 or int64, below 0 as 0 and beyond ``max_context_len`` as that: step j has j + 1 keys
            more, which count from 1 again behind the context.
        rope: cosines, sines ``[max_pos, D]`` of up to two bases, alike, contiguous, of at least ``max_context_len``
            rows.
        block_size: slots of a block, a power of two.
        max_context_len: drafts at this position or beyond are dummies.
        dummy_slot: what stands for no slot.
        slots: of each step, int32 ``[N]``, or ``[N, 2]`` pairs (block, offset).
        kv_lens: of each step, int32 ``[N]``; 0 for padding and behind the requests.
        cu_seqlens: of each step, int32 ``[N + 1]``, 0, 1, .. N; or none.
        rope_rows: of each step, ``[N, D]``: cosines of the first base, its sines, and so on.

    The last four are written, by each ``run``, which checks all arguments.

    Source: docs/spec.md, draft steps.
    """

    __slots__ = ("_call", "run")

    def __init__(
        self,
        block_table: Tensor,
        last_positions: Tensor,
        seq_lens: Tensor,
        rope: Sequence[Tensor],
        block_size: int,
        max_context_len: int,
        dummy_slot: int,
        slots: Sequence[Tensor],
        kv_lens: Sequence[Tensor],
        cu_seqlens: Sequence[Tensor],
        rope_rows: Sequence[Tensor],
    ) -> None:
        changing = block_table, last_positions, seq_lens
        fixed = rope, block_size, max_context_len, dummy_slot, slots, kv_lens, cu_seqlens, rope_rows
        self._call = BoundCall("draft_steps__apart", (*changing, *fixed), range(len(changing)))
        self.run: Callable[[Tensor, Tensor, Tensor], object] = self._call.run
        """Called with ``block_table``, ``last_positions`` and ``seq_lens``, which stand for those here. The op checks
        its arguments then: ValueError, and nothing was written."""


fake_kernel("draft_steps")(writes_only)
fake_kernel("draft_steps.apart")(writes_only)

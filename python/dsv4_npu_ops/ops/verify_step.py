"""Everything of a target verify, by the op of ``build_step``."""

from torch import Tensor

from dsv4_npu_ops.layout.step_rows import StepRows
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.layout.verify_step import VerifyStep
from dsv4_npu_ops.ops.caller_errors import TABLES, caller_errors
from dsv4_npu_ops.ops.compress_metadata import METADATA_FIELDS
from dsv4_npu_ops.ops.step import ResultFields, fill_step
from dsv4_npu_ops.ops.step_sizes import host_num_tokens
from dsv4_npu_ops.ops.verify_bundle import SLOT_FIELDS

_fields = ResultFields(
    {name: f"out_cache_loc.{name}" for name in SLOT_FIELDS}
    | {name: f"metadata.{name}" for name in METADATA_FIELDS}
    | {name: name for name in ("c4_cos", "c4_sin", "c128_cos", "c128_sin")}
)


@caller_errors(TABLES, out=_fields.names)
def build_verify_step(
    tables: RequestTables,
    req_pool_indices: Tensor | None,
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
        tables, req_pool_indices: as in ``build_compress_metadata_verify``.
        seq_lens: ``[B]`` int32 or int64 committed lengths L, never with the drafts. A row of length 0 is padding.
        num_draft_tokens: n of this very batch for every row, or ``[B]`` int32 or int64 widths, one a row.
        rope_cos, rope_sin: float32 ``[max_pos, D]`` tables of the compressed layers' base, contiguous, same device.
        num_tokens, max_seq_len: as in ``build_compress_metadata_verify``.
        out: buffers that are overwritten to their last entry (``VerifyStep.empty``); nothing is allocated.

    Returns:
        ``out``, or a new ``VerifyStep``.

    Raises:
        ValueError: as ``build_step``; ``out`` has two tensors for the slots of groups. Nothing was written.
        IndexError: as ``build_step``. Nothing was written.

    Source: docs/spec.md, a step.
    """
    rows = StepRows.verify(seq_lens, num_draft_tokens)
    if out is None:
        if num_tokens is None:
            num_tokens = host_num_tokens(rows)
        if not isinstance(rope_cos, Tensor) or rope_cos.dim() != 2:
            shape = list(rope_cos.shape) if isinstance(rope_cos, Tensor) else rope_cos
            raise ValueError(f"step: rope_cos has shape {shape}, expected 2 dimensions")
        sizes = seq_lens.shape[0], num_tokens, rope_cos.shape[1], max_seq_len
        out = VerifyStep.empty(tables, *sizes, device=seq_lens.device)
    _check_shared_slots(tables, out)
    fill_step(tables, rows, *_fields.take(out, tables), req_pool_indices, rope_cos, rope_sin)
    return out


def _check_shared_slots(tables: RequestTables, out: VerifyStep) -> None:
    """The op writes slots of groups once."""
    loc, metadata = out.out_cache_loc, out.metadata
    for pool, slots, same in (
        ("c4", loc.out_c4_loc, metadata.c4_loc),
        ("c128", loc.out_c128_loc, metadata.c128_loc),
    ):
        if slots is not same and tables.has_pool(pool):
            raise ValueError(f"step: out has an out_{pool}_loc and another {pool}_loc, expected one tensor for both")

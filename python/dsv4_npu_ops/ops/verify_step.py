"""Everything of a target verify, by the op of ``build_step``."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from dsv4_npu_ops.layout.buffers import Buffer, number_of
from dsv4_npu_ops.layout.compress_metadata import CompressMetadata
from dsv4_npu_ops.layout.out_cache_loc import OutCacheLoc
from dsv4_npu_ops.layout.step_rows import StepRows
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.layout.verify_step import RopeTables, VerifyStep, rope_buffers
from dsv4_npu_ops.ops.caller_errors import TABLES, caller_errors
from dsv4_npu_ops.ops.compress_metadata import METADATA_FIELDS
from dsv4_npu_ops.ops.step import TOKEN_TABLES, ResultFields, bind_step, fill_step, token_rope
from dsv4_npu_ops.ops.step_sizes import host_num_tokens
from dsv4_npu_ops.ops.verify_bundle import SLOT_FIELDS

_METADATA = [name for name in METADATA_FIELDS if name not in SLOT_FIELDS]
_ROPE = ("c4_cos", "c4_sin", "c128_cos", "c128_sin")
_SHARED = (
    {name: f"out_cache_loc.{name}" for name in SLOT_FIELDS}
    | {name: f"metadata.{METADATA_FIELDS[name]}" for name in _METADATA}
    | {name: name for name in _ROPE}
)
_FIELDS: dict[tuple[str, ...], ResultFields] = {
    bases: ResultFields(_SHARED | {f"{base}_{part}": f"{base}_{part}" for base in bases for part in ("cos", "sin")})
    for bases in ((), ("main",), ("compress",), ("main", "compress"))
}
"""By the RoPE bases of which there are rows of tokens."""


_OUT = _FIELDS["main", "compress"].names


@caller_errors(TABLES | TOKEN_TABLES, out=_OUT)
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
    main_rope: RopeTables | None = None,
    compress_rope: RopeTables | None = None,
    out: VerifyStep | None = None,
) -> VerifyStep:
    """Slots, metadata and RoPE rows of a target verify, in one launch.

    The results equal those of ``flatten_verify_bundle`` (without host lengths), ``build_compress_metadata_verify`` and
    ``rope_gather`` at ``positions_c4``, at ``positions_c128`` and, of both bases, at ``positions``.

    Args:
        tables, req_pool_indices: as in ``build_compress_metadata_verify``.
        seq_lens: ``[B]`` int32 or int64 committed lengths L, never with the drafts. A row of length 0 is padding.
        num_draft_tokens: n of this very batch for every row, or ``[B]`` int32 or int64 widths, one a row.
        rope_cos, rope_sin: float32 ``[max_pos, D]`` tables of the compressed layers' base, contiguous, same device.
        num_tokens, max_seq_len: as in ``build_compress_metadata_verify``.
        main_rope, compress_rope: as in ``build_step``; ``out`` has buffers for the rows of those that are given.
        out: buffers that are overwritten to their last entry (``VerifyStep.empty``); nothing is allocated.

    Returns:
        ``out``, or a new ``VerifyStep``.

    Raises:
        ValueError: as ``build_step``; ``out`` has two tensors for the slots of groups. Nothing was written.
        IndexError: as ``build_step``. Nothing was written.

    Source: docs/spec.md, a step.
    """
    rows, bases = StepRows.verify(seq_lens, num_draft_tokens), _bases(main_rope, compress_rope)
    fields, named = _FIELDS[bases], token_rope(main_rope, compress_rope)
    if out is None:
        if num_tokens is None:
            num_tokens = host_num_tokens(rows)
        if not isinstance(rope_cos, Tensor) or rope_cos.dim() != 2:
            shape = list(rope_cos.shape) if isinstance(rope_cos, Tensor) else rope_cos
            raise ValueError(f"step: rope_cos has shape {shape}, expected 2 dimensions")
        token_rows = [size for table in named.values() for size in (number_of(table.dtype), table.shape[1])]
        sizes = seq_lens.shape[0], num_tokens, max_seq_len, rope_cos.shape[1], *token_rows
        buffers = partial(_buffers, [name.replace("_rope", "") for name in named])
        inputs = req_pool_indices, rope_cos, rope_sin
        return _result(fields.make(tables, rows, sizes, buffers, *inputs, token_tables=named), named)
    _check_shared_slots(tables, out)
    _check_token_rows(out, bases)
    given, wanted = fields.take(out, tables)
    fill_step(tables, rows, given, wanted, req_pool_indices, rope_cos, rope_sin, **named)
    return out


def bind_verify_step(
    tables: RequestTables,
    req_pool_indices: Tensor | None,
    rows: StepRows,
    rope: RopeTables,
    out: VerifyStep,
    main_rope: RopeTables | None,
    compress_rope: RopeTables | None,
) -> Callable[[], None]:
    """``build_verify_step`` with these arguments, to be called again and again; ``out`` is of ``VerifyStep.empty``."""
    given, wanted = _FIELDS[_bases(main_rope, compress_rope)].take(out, tables)
    named = token_rope(main_rope, compress_rope)
    call = bind_step(tables, rows, given, wanted, req_pool_indices, *rope, **named)

    def refresh() -> None:
        if torch.compiler.is_compiling():  # a trace takes the op with all of its arguments
            fill_step(tables, rows, given, wanted, req_pool_indices, *rope, **named)
        else:
            call(rows.seq_lens, req_pool_indices, rows.operand)

    refresh.__name__ = build_verify_step.__name__  # which errors say
    return caller_errors(TABLES | TOKEN_TABLES | _OUT)(refresh)


def _bases(main_rope: RopeTables | None, compress_rope: RopeTables | None) -> tuple[str, ...]:
    if main_rope is None and compress_rope is None:
        return ()
    return tuple(base for base, rope in (("main", main_rope), ("compress", compress_rope)) if rope is not None)


def _buffers(
    token_fields: Sequence[str],
    tables: RequestTables,
    num_rows: int,
    num_tokens: int,
    max_seq_len: int | None,
    rope_dim: int,
    *token_rows: int,
) -> dict[str, Buffer]:
    """token_fields: of the tokens' RoPE rows; token_rows: of each, number of the dtype and elements of a row."""
    metadata = CompressMetadata.buffers(tables, num_rows, num_tokens, max_seq_len)
    groups = metadata["positions_c4"][1], metadata["positions_c128"][1]
    return (
        OutCacheLoc.buffers(tables, num_rows, num_tokens)
        | {name: metadata[METADATA_FIELDS[name]] for name in _METADATA}
        | rope_buffers(*groups, rope_dim)
        | {
            name: (dtype, num_tokens, dim)
            for name, dtype, dim in zip(token_fields, token_rows[::2], token_rows[1::2], strict=True)
        }
    )


def _result(tensors: Sequence[Tensor], token_tables: Mapping[str, Tensor]) -> VerifyStep:
    """The slots of groups are one tensor in both parts."""
    parts = iter(tensors)
    loc = OutCacheLoc(*islice(parts, len(SLOT_FIELDS)))
    positions_c4, positions_c128, *others = islice(parts, len(_METADATA))
    metadata = CompressMetadata(positions_c4, positions_c128, loc.out_c4_loc, loc.out_c128_loc, *others)
    groups = islice(parts, len(_ROPE))
    return VerifyStep(loc, metadata, *groups, **{name.replace("_rope", ""): next(parts) for name in token_tables})


def _check_token_rows(out: VerifyStep, bases: Sequence[str]) -> None:
    """Buffers and tables belong together: no buffer stays as it was."""
    for base in ("main", "compress"):
        for part in ("cos", "sin"):
            if (getattr(out, f"{base}_{part}") is None) == (base in bases):
                given, wanted = ("None", "a buffer for the rows of") if base in bases else ("a tensor", "None without")
                raise ValueError(f"step: out.{base}_{part} is {given}, expected {wanted} {base}_rope")


def _check_shared_slots(tables: RequestTables, out: VerifyStep) -> None:
    """The op writes slots of groups once."""
    loc, metadata = out.out_cache_loc, out.metadata
    for pool, slots, same in (
        ("c4", loc.out_c4_loc, metadata.c4_loc),
        ("c128", loc.out_c128_loc, metadata.c128_loc),
    ):
        if slots is not same and tables.has_pool(pool):
            raise ValueError(f"step: out has an out_{pool}_loc and another {pool}_loc, expected one tensor for both")

"""Everything that one target verify needs (docs/spec.md, a step)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4_npu_ops.layout.buffers import FLOAT32, Buffer, empty_tensors
from dsv4_npu_ops.layout.compress_metadata import CompressMetadata
from dsv4_npu_ops.layout.kv_layout import KVLayout
from dsv4_npu_ops.layout.out_cache_loc import OutCacheLoc
from dsv4_npu_ops.layout.tables import RequestTables

RopeTables = tuple[Tensor, Tensor]
"""cos and sin ``[max_pos, D]`` of one RoPE base."""

ROPE_TYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(slots=True)
class VerifyStep:
    """Slots, metadata and RoPE rows of one step.

    ``out_cache_loc``: its dense slots are the metadata's, the same tensors. ``c4_cos``, ``c4_sin``, ``c128_cos``,
    ``c128_sin``: float32 ``[cap, D]``, the rows at ``metadata.positions_c4`` and ``positions_c128``; those of the zero
    tail are the row of position 0. ``main_cos``, ``main_sin``, ``compress_cos``, ``compress_sin``: ``[num_tokens, D]``,
    rows of both bases at ``metadata.positions``, or None.

    Source: docs/spec.md, a step.
    """

    out_cache_loc: OutCacheLoc
    metadata: CompressMetadata
    c4_cos: Tensor
    c4_sin: Tensor
    c128_cos: Tensor
    c128_sin: Tensor
    main_cos: Tensor | None = None
    main_sin: Tensor | None = None
    compress_cos: Tensor | None = None
    compress_sin: Tensor | None = None

    @classmethod
    def empty(
        cls,
        layout: KVLayout | RequestTables,
        num_rows: int,
        num_tokens: int,
        rope_dim: int,
        max_seq_len: int | None = None,
        page_tables: CompressMetadata | None = None,
        device: torch.device | None = None,
        *,
        main_rope: RopeTables | None = None,
        compress_rope: RopeTables | None = None,
    ) -> VerifyStep:
        """Uninitialised buffers for the ``out=`` form.

        Args:
            layout, num_rows, num_tokens, max_seq_len, page_tables, device: as in ``CompressMetadata.empty``.
            rope_dim: D, elements of a RoPE row of a group.
            main_rope, compress_rope: tables of the tokens' rows, ``[max_pos, D]``; None where they are not wanted.

        Raises:
            ValueError: a negative number; shared page tables that do not fit; tables that are no pair of tensors.
        """
        if rope_dim < 0:
            raise ValueError(f"VerifyStep.empty: rope_dim is {rope_dim}, expected at least 0")
        check_rope_tables("VerifyStep.empty", main_rope=main_rope, compress_rope=compress_rope)
        metadata = CompressMetadata.empty(layout, num_rows, num_tokens, max_seq_len, page_tables, device)
        groups = rope_buffers(metadata.positions_c4.shape[0], metadata.positions_c128.shape[0], rope_dim)
        loc = OutCacheLoc.empty(layout, num_rows, num_tokens, device)
        loc.out_c4_loc, loc.out_c128_loc = metadata.c4_loc, metadata.c128_loc
        tokens = [
            None if table is None else table.new_empty((num_tokens, table.shape[-1]))
            for tables in (main_rope, compress_rope)
            for table in tables or (None, None)
        ]
        return cls(loc, metadata, *empty_tensors(groups.values(), device or layout.device), *tokens)


def check_rope_tables(op: str, **bases: RopeTables | None) -> None:
    """Checks that tables of RoPE rows are pairs of tensors of a type that such rows have.

    Raises:
        ValueError: naming the argument.
    """
    for name, tables in bases.items():
        if tables is None:
            continue
        if not isinstance(tables, tuple | list) or len(tables) != 2 or not all(isinstance(t, Tensor) for t in tables):
            kinds = (
                type(tables).__name__ if not isinstance(tables, tuple | list) else [type(t).__name__ for t in tables]
            )
            raise ValueError(f"{op}: {name} is {kinds}, expected two tensors, cos and sin")
        for i, table in enumerate(tables):
            if table.dim() < 2:
                raise ValueError(f"{op}: {name}[{i}] has shape {list(table.shape)}, expected 2 dimensions")
            if table.dtype not in ROPE_TYPES:
                expected = " or ".join(str(dtype) for dtype in ROPE_TYPES)
                raise ValueError(f"{op}: {name}[{i}] has dtype {table.dtype}, expected {expected}")


def rope_buffers(c4_groups: int, c128_groups: int, rope_dim: int) -> dict[str, Buffer]:
    """The buffers of the RoPE rows of groups, in the order of the attributes."""
    return {
        f"{pool}_{part}": (FLOAT32, groups, rope_dim)
        for pool, groups in (("c4", c4_groups), ("c128", c128_groups))
        for part in ("cos", "sin")
    }

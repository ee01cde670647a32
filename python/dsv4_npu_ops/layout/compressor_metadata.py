"""Where completed groups go and how they are rotated, for engines with block tables (docs/spec.md, compressor
metadata)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from dsv4_npu_ops.layout.buffers import INT32, INT64, Buffer, empty_tensors, number_of

FLAT, PAIRS = 1, 2
"""Formats of a slot mapping: slots, or pairs (block, offset)."""


@dataclass(slots=True)
class CompressorMetadata:
    """One row for each completed group, dense in batch order, then dummies; what is None is not computed.

    Attributes:
        cos, sin: ``[rows, 1, 1, D]`` RoPE rows at the groups' positions, in the dtype of the tables; 1 and 0 in
            dummies.
        slot_mapping: int32 ``[rows]`` slots, -1 in dummies; or ``[rows, 2]`` pairs, (-1, ``kv_block_size - 1``).
        positions: int64 ``[rows]`` of the groups' first tokens, 0 in dummies.

    Source: docs/spec.md, compressor metadata.
    """

    cos: Tensor | None = None
    sin: Tensor | None = None
    slot_mapping: Tensor | None = None
    positions: Tensor | None = None

    @classmethod
    def empty(
        cls,
        num_rows: int,
        rope_dim: int,
        *,
        wanted: Collection[str] = ("cos", "sin", "slot_mapping", "positions"),
        slot_mapping_format: int = FLAT,
        rope_dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> CompressorMetadata:
        """Uninitialised buffers for the ``out=`` form.

        Args:
            num_rows: rows of each.
            rope_dim: D, elements of a RoPE row.
            wanted: names of the buffers to make.
            slot_mapping_format: 1 for flat slots, 2 for pairs (block, offset).
            rope_dtype: of the RoPE tables.
            device: where the step runs.

        Raises:
            ValueError: a negative number, or an unknown name.
        """
        if min(num_rows, rope_dim) < 0:
            raise ValueError(
                f"CompressorMetadata.empty: num_rows and rope_dim are {num_rows} and {rope_dim}, expected at least 0"
            )
        for name in wanted:
            if name not in COMPRESSOR_FIELDS:
                raise ValueError(
                    f"CompressorMetadata.empty: wanted names {name!r}, expected names among "
                    f"{', '.join(COMPRESSOR_FIELDS)}"
                )
        rope = (number_of(rope_dtype), num_rows, 1, 1, rope_dim)
        pair = (2,) if slot_mapping_format == PAIRS else ()
        buffers: dict[str, Buffer] = {
            "cos": rope,
            "sin": rope,
            "slot_mapping": (INT32, num_rows, *pair),
            "positions": (INT64, num_rows),
        }
        return cls(**dict(zip(wanted, empty_tensors([buffers[name] for name in wanted], device), strict=True)))


COMPRESSOR_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(CompressorMetadata))
"""Names in the order of the numbers by which the op knows them (csrc/ops/compressor_metadata)."""

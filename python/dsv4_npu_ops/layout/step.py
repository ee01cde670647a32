"""Everything that one step can be asked for (docs/spec.md, a step)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Tensor


@dataclass(slots=True)
class Step:
    """Buffers of one step, each optional: what is None is not computed. B rows, T tokens, G entries for groups of a
    ratio.

    ``out_full_loc``, ``out_swa_loc``, ``out_c4_state_loc``, ``out_c128_state_loc``: int32 or int64 ``[T]`` slots.
    ``out_c4_loc``, ``out_c128_loc``: int32 or int64 ``[G]``, dense in batch order, then dummies. All of these may be
    int32 ``[.., 2]`` instead, pairs (page, offset), where the pool knows pages. ``*_page_table``: int32 ``[B, any
    columns]``, rows at any stride. ``positions``: int64 ``[T]``. ``positions_c4``, ``positions_c128``: int64 ``[G]``,
    dense. ``start_pos``, ``seqused``, ``kv_lens``: int32 ``[B]``. ``cu_seqlens``: int32 ``[B + 1]``.
    ``num_groups``: int32 ``[2]``, completed groups of ratios 4 and 128. ``c4_cos``, ``c4_sin``, ``c128_cos``,
    ``c128_sin``: float32 ``[G, D]``. ``c4_state_locs``, ``c128_state_locs``: int32 ``[B, lead + width]`` with a lead of
    8 and 128 tokens before the step. ``window_locs``: int32 ``[rows * block, K]``. ``main_cos``, ``main_sin``,
    ``compress_cos``, ``compress_sin``: ``[T, D]`` of the dtype of their tables.

    Source: docs/spec.md, a step.
    """

    out_full_loc: Tensor | None = None
    out_swa_loc: Tensor | None = None
    out_c4_loc: Tensor | None = None
    out_c128_loc: Tensor | None = None
    out_c4_state_loc: Tensor | None = None
    out_c128_state_loc: Tensor | None = None
    full_page_table: Tensor | None = None
    swa_page_table: Tensor | None = None
    c4_page_table: Tensor | None = None
    c128_page_table: Tensor | None = None
    c4_state_page_table: Tensor | None = None
    c128_state_page_table: Tensor | None = None
    positions: Tensor | None = None
    positions_c4: Tensor | None = None
    positions_c128: Tensor | None = None
    start_pos: Tensor | None = None
    seqused: Tensor | None = None
    kv_lens: Tensor | None = None
    cu_seqlens: Tensor | None = None
    num_groups: Tensor | None = None
    c4_cos: Tensor | None = None
    c4_sin: Tensor | None = None
    c128_cos: Tensor | None = None
    c128_sin: Tensor | None = None
    c4_state_locs: Tensor | None = None
    c128_state_locs: Tensor | None = None
    window_locs: Tensor | None = None
    main_cos: Tensor | None = None
    main_sin: Tensor | None = None
    compress_cos: Tensor | None = None
    compress_sin: Tensor | None = None


STEP_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(Step))
"""Names in the order of the numbers by which the op knows them (csrc/common/step_fields.h)."""

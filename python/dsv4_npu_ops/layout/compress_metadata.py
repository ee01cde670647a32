"""What the attention and compressor kernels need to know about a step (docs/spec.md, a step)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4_npu_ops.layout.buffers import INT32, INT64, Buffer, empty_tensors
from dsv4_npu_ops.layout.capacity import group_capacity, page_columns
from dsv4_npu_ops.layout.kv_layout import KVLayout
from dsv4_npu_ops.layout.tables import RequestTables

PAGE_TABLE_POOLS: tuple[str, ...] = ("swa", "c4", "c128", "c4_state", "c128_state")
"""Pools that have a page table, in the order of the metadata's outputs."""


@dataclass(slots=True)
class CompressMetadata:
    """One step, as attention and compressor see it; B rows, T tokens, on the tables' device.

    ``positions_c4``, ``positions_c128``: int64 ``[cap]``, first raw position of every completed group, dense in batch
    order, then 0; ``c4_loc``, ``c128_loc``: int32 ``[cap]``, their slots, then 0. cap: ``max(1, min(T, T // r + B))``.
    ``start_pos``, ``seqused``, ``kv_lens``: int32 ``[B]``, tokens before the step, new ones, and their sum; padding
    rows 0, 0 and 1. ``cu_seqlens``: int32 ``[B + 1]``, where each row's tokens lie. ``positions``: int64 ``[T]``.
    ``*_page_table``: int32 ``[B, columns]`` pages; -1 (swa, c4, c128) or 0 (states) where there is none.
    A pool that does not exist has 0 slots and 0 columns; one without pages has 0 columns.

    Source: docs/spec.md, a step.
    """

    positions_c4: Tensor
    positions_c128: Tensor
    c4_loc: Tensor
    c128_loc: Tensor
    start_pos: Tensor
    seqused: Tensor
    cu_seqlens: Tensor
    positions: Tensor
    kv_lens: Tensor
    swa_page_table: Tensor
    c4_page_table: Tensor
    c128_page_table: Tensor
    c4_state_page_table: Tensor
    c128_state_page_table: Tensor

    @classmethod
    def empty(
        cls,
        layout: KVLayout | RequestTables,
        num_rows: int,
        num_tokens: int,
        max_seq_len: int | None = None,
        page_tables: CompressMetadata | None = None,
        device: torch.device | None = None,
    ) -> CompressMetadata:
        """Uninitialised buffers for the ``out=`` form.

        Args:
            layout: pools and page sizes: a layout, or tables.
            num_rows: B, padding rows included.
            num_tokens: T, the most tokens a step has.
            max_seq_len: raw tokens that the page tables cover; default the layout's ``max_context_len``.
            page_tables: buffers of at least as many rows, whose page tables' first rows are taken instead of new ones.
            device: where they are wanted; default that of ``layout``.

        Raises:
            ValueError: a negative number; shared page tables of another layout, width or of fewer rows.
        """
        buffers = cls.buffers(layout, num_rows, num_tokens, max_seq_len)
        shared: list[Tensor] = []
        if page_tables is not None:
            for pool in PAGE_TABLE_POOLS:
                _, rows, columns = buffers.pop(f"{pool}_page_table")
                shared.append(_shared_rows(page_tables, pool, rows, columns))
        return cls(*empty_tensors(buffers.values(), device or layout.device), *shared)

    @staticmethod
    def buffers(
        layout: KVLayout | RequestTables, num_rows: int, num_tokens: int, max_seq_len: int | None = None
    ) -> dict[str, Buffer]:
        """The buffer of each attribute, in their order.

        Raises:
            ValueError: a negative number.
        """
        if num_rows < 0 or num_tokens < 0 or (max_seq_len is not None and max_seq_len < 0):
            raise ValueError(
                f"CompressMetadata.empty: num_rows, num_tokens and max_seq_len are {num_rows}, {num_tokens} and "
                f"{max_seq_len}, expected at least 0"
            )
        length = layout.max_context_len if max_seq_len is None else max_seq_len
        c4_groups, c128_groups = (group_capacity(num_tokens, num_rows, ratio) for ratio in (4, 128))
        buffers: dict[str, Buffer] = {
            "positions_c4": (INT64, c4_groups),
            "positions_c128": (INT64, c128_groups),
            "c4_loc": (INT32, c4_groups if layout.has_pool("c4") else 0),
            "c128_loc": (INT32, c128_groups if layout.has_pool("c128") else 0),
            "start_pos": (INT32, num_rows),
            "seqused": (INT32, num_rows),
            "cu_seqlens": (INT32, num_rows + 1),
            "positions": (INT64, num_tokens),
            "kv_lens": (INT32, num_rows),
        }
        for pool in PAGE_TABLE_POOLS:
            columns = page_columns(length, pool, layout.page_size_of(pool)) if layout.has_pages(pool) else 0
            buffers[f"{pool}_page_table"] = INT32, num_rows, columns
        return buffers


def _shared_rows(page_tables: CompressMetadata, pool: str, num_rows: int, columns: int) -> Tensor:
    table: Tensor = getattr(page_tables, f"{pool}_page_table")
    if table.shape[0] < num_rows or table.shape[1] != columns:
        raise ValueError(
            f"CompressMetadata.empty: page_tables has {pool} pages {list(table.shape)}, "
            f"expected at least {num_rows} rows of {columns}"
        )
    return table[:num_rows]

"""Slots of one step in all six pools (docs/spec.md, a step; allocation)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4_npu_ops.layout.buffers import INT32, Buffer, empty_tensors
from dsv4_npu_ops.layout.capacity import group_capacity
from dsv4_npu_ops.layout.kv_layout import POOLS, RAW_TOKENS_PER_SLOT, KVLayout
from dsv4_npu_ops.layout.tables import RequestTables


@dataclass
class OutCacheLoc:
    """Slots, int32, on the tables' device.

    ``out_full_loc``, ``out_swa_loc``, ``out_c4_state_loc`` and ``out_c128_state_loc`` are token-aligned ``[T]``: the
    tokens of row i lie at ``cu_seqlens[i]``; 0 where the token has no slot. ``out_c4_loc`` and ``out_c128_loc`` are
    dense in batch order, one entry for each group that the step completes. A pool that does not exist has 0 entries.

    Source: docs/spec.md, a step; allocation.
    """

    out_full_loc: Tensor
    out_swa_loc: Tensor
    out_c4_loc: Tensor
    out_c128_loc: Tensor
    out_c4_state_loc: Tensor
    out_c128_state_loc: Tensor

    def in_order(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The six slot tensors in table order, as the ops take them."""
        return (
            self.out_full_loc,
            self.out_swa_loc,
            self.out_c4_loc,
            self.out_c128_loc,
            self.out_c4_state_loc,
            self.out_c128_state_loc,
        )

    @classmethod
    def empty(
        cls,
        layout: KVLayout | RequestTables,
        num_rows: int,
        num_tokens: int,
        device: torch.device | None = None,
    ) -> OutCacheLoc:
        """Uninitialised buffers for the ``out=`` form of a step of ``num_rows`` rows and at most ``num_tokens`` tokens.

        The dense ones hold every group that such a step can complete: ``max(1, min(T, T // r + B))`` entries.
        ``layout``: a layout, or tables; ``device``: where the buffers are wanted, default that of ``layout``.

        Raises:
            ValueError: a negative number.
        """
        return cls(*empty_tensors(cls.buffers(layout, num_rows, num_tokens).values(), device or layout.device))

    @staticmethod
    def buffers(layout: KVLayout | RequestTables, num_rows: int, num_tokens: int) -> dict[str, Buffer]:
        """The buffer of each attribute, in their order.

        Raises:
            ValueError: a negative number.
        """
        if num_rows < 0 or num_tokens < 0:
            raise ValueError(
                f"OutCacheLoc.empty: num_rows and num_tokens are {num_rows} and {num_tokens}, expected at least 0"
            )

        def entries(pool: str) -> int:
            ratio = RAW_TOKENS_PER_SLOT[pool]
            return num_tokens if ratio == 1 else group_capacity(num_tokens, num_rows, ratio)

        return {f"out_{pool}_loc": (INT32, entries(pool) if layout.has_pool(pool) else 0) for pool in POOLS}

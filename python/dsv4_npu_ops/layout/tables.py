"""Request tables: which slot holds each position of each request (docs/spec.md, model and pools)."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, zeros
from torch import int32 as torch_int32

from dsv4_npu_ops.layout.kv_layout import POOLS, KVLayout


class RequestTables:
    """One int32 table ``[max_requests, columns]`` a pool; an entry is the unit's slot, 0 where it has none.

    ``full``, ``swa``, ``c4_state`` and ``c128_state`` have a column per raw token, ``c4`` and ``c128`` one per 4 or
    128; a pool that the layout does not have gets ``[max_requests, 0]``. Ops write the tables in place.

    Source: docs/spec.md, model and pools.
    """

    full: Tensor
    swa: Tensor
    c4: Tensor
    c128: Tensor
    c4_state: Tensor
    c128_state: Tensor

    def __init__(self, layout: KVLayout) -> None:
        self.layout = layout
        self.page_size = layout.page_size
        self.sliding_window = layout.sliding_window
        for pool in POOLS:
            shape = (layout.max_requests, layout.num_columns(pool))
            # Made on the host and copied: a fill on the device would be a launch of its own.
            setattr(self, pool, zeros(shape, dtype=torch_int32, device="cpu").to(layout.device))

    def select(self, *pools: str) -> RequestTables:
        """The same tables, in the same memory, as if only the named pools existed: ops return nothing for the others.

        Raises:
            ValueError: a pool that does not exist.
        """
        for pool in pools:
            if pool not in POOLS or not self.layout.has_pool(pool):
                existing = ", ".join(name for name in POOLS if self.layout.has_pool(name))
                raise ValueError(f"RequestTables.select: pool is {pool!r}, expected one of {existing}")
        chosen = RequestTables.__new__(RequestTables)
        chosen.layout = replace(self.layout, num_pages={pool: self.layout.num_pages[pool] for pool in pools})
        chosen.page_size, chosen.sliding_window = self.page_size, self.sliding_window
        for pool in POOLS:
            table = getattr(self, pool)
            setattr(chosen, pool, table if pool in pools else table[:, :0])
        return chosen

    def in_order(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The six tables in table order, as the ops take them."""
        return self.full, self.swa, self.c4, self.c128, self.c4_state, self.c128_state

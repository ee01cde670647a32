"""Request tables: which slot holds each position of each request (docs/spec.md, model and pools)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import Tensor, zeros
from torch import int32 as torch_int32

from dsv4_npu_ops.layout.kv_layout import POOLS, KVLayout


class RequestTables:
    """One int32 table ``[max_requests, columns]`` a pool; an entry is the unit's slot, 0 where it has none.

    ``full``, ``swa``, ``c4_state`` and ``c128_state`` have a column per raw token, ``c4`` and ``c128`` one per 4 or
    128; a pool that the layout does not have gets ``[max_requests, 0]``. Ops write the tables in place.

    Attributes:
        check_reserved: whether steps first look for a slot of each of their tokens and groups, for debugging: the
            lookup is slow, and waits for a device. Default: whether the environment has ``DSV4_CHECK_RESERVED=1``.

    Raises:
        ValueError: no layout.

    Source: docs/spec.md, model and pools.
    """

    full: Tensor
    swa: Tensor
    c4: Tensor
    c128: Tensor
    c4_state: Tensor
    c128_state: Tensor

    def __init__(self, layout: KVLayout) -> None:
        if not isinstance(layout, KVLayout):
            raise ValueError(f"RequestTables: layout is a {type(layout).__name__}, expected a KVLayout")
        self.layout = layout
        self.page_size = layout.page_size
        self.sliding_window = layout.sliding_window
        self.check_reserved = os.environ.get("DSV4_CHECK_RESERVED") == "1"
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
        layout = replace(self.layout, num_pages={pool: self.layout.num_pages[pool] for pool in pools})
        tables = [getattr(self, pool) if pool in pools else getattr(self, pool)[:, :0] for pool in POOLS]
        chosen = RequestTables.of(layout, tables)
        chosen.check_reserved = self.check_reserved
        return chosen

    @classmethod
    def of(cls, layout: KVLayout, tables: Iterable[Any]) -> RequestTables:
        """Tables that exist, in table order, as those of a layout; steps do not look whether they have slots."""
        made = cls.__new__(cls)
        made.layout, made.page_size, made.sliding_window = layout, layout.page_size, layout.sliding_window
        made.check_reserved = False
        for pool, table in zip(POOLS, tables, strict=True):
            setattr(made, pool, table)
        return made

    def in_order(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The six tables in table order, as the ops take them."""
        return self.full, self.swa, self.c4, self.c128, self.c4_state, self.c128_state

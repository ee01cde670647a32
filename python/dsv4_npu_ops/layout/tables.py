"""Request tables: where the slots of each request stand (docs/spec.md, model and pools; addressing)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.layout.kept_sizes import KeptSizes
from dsv4_npu_ops.layout.kv_layout import INT32_MAX, POOLS, KVLayout
from dsv4_npu_ops.layout.pool_address import (
    KINDS_WITH_PAGES,
    NO_ADDRESS,
    PageTable,
    PoolAddress,
    SlotTable,
    check_addresses,
    op_addresses,
    op_pools,
    page_size_of,
    with_bases,
)


class RequestTables:
    """The pools of a cache as ops see them: an address for each pool that exists.

    ``RequestTables(layout)`` makes the package's own: for each pool of the layout an int32 table of pages,
    ``[max_requests, pages of the longest request]``, 0 where a request has none; ``KVAllocator`` writes them in place.
    ``RequestTables.of`` takes an engine's.

    Attributes:
        pools: the addresses by pool, in table order; what is missing does not exist.
        layout: what the tables were made for; None for an engine's.
        sliding_window: tokens that the sliding-window layers attend to, the current one included.
        max_context_len: longest request in raw tokens, drafts included.
        op_tables: the tensors of the six pools, None where an address has none; kinds: how each is addressed.
        op_pools: what ops take for the pools. op_token_pools: the same as if only full and swa existed, and what their
            slots are made of. written_pools: as if only pools with a table of slots or pages existed.
        check_reserved: whether steps first look for a slot of each of their tokens and groups, for debugging: the
            lookup is slow, and waits for a device. Default: whether the environment has ``DSV4_CHECK_RESERVED=1``.

    Raises:
        ValueError: no layout.

    Source: docs/spec.md, model and pools; addressing.
    """

    def __init__(self, layout: KVLayout) -> None:
        if not isinstance(layout, KVLayout):
            raise ValueError(f"RequestTables: layout is a {type(layout).__name__}, expected a KVLayout")

        def page_table(pool: str) -> PageTable:
            shape = (layout.max_requests, layout.num_columns(pool))
            # Made on the host and copied: a fill on the device would be a launch of its own.
            table = torch.zeros(shape, dtype=torch.int32, device="cpu").to(layout.device)
            return PageTable(table, layout.page_size_of(pool))

        self._set(
            {pool: page_table(pool) for pool in POOLS if layout.has_pool(pool)},
            layout.sliding_window,
            layout.max_context_len,
            layout,
            asked_to_check(),
        )

    @classmethod
    def of(cls, pools: Mapping[str, PoolAddress], *, sliding_window: int = 128, max_context_len: int) -> RequestTables:
        """An engine's tables, which are read where they are: nothing is copied.

        Args:
            pools: an address for each pool that exists. All tensors on one device.
            sliding_window: tokens that the sliding-window layers attend to, the current one included.
            max_context_len: longest request in raw tokens, drafts included; every table must have room for it.

        Raises:
            ValueError: an unknown pool, a tensor of another type, a rule whose base does not fit, or a number out of
                range.

        Source: docs/spec.md, addressing.
        """
        check_addresses(pools)
        for name, value in (("sliding_window", sliding_window), ("max_context_len", max_context_len)):
            if not isinstance(value, int) or not 1 <= value <= INT32_MAX:
                raise ValueError(f"RequestTables.of: {name} is {value!r}, expected 1 to {INT32_MAX} (int32)")
        return cls.unchecked(pools, sliding_window, max_context_len, None, asked_to_check())

    @classmethod
    def unchecked(
        cls,
        pools: Mapping[str, PoolAddress],
        sliding_window: int,
        max_context_len: int,
        layout: KVLayout | None,
        check_reserved: bool,
    ) -> RequestTables:
        """Tables of these attributes, whatever stands for their tensors."""
        tables = cls.__new__(cls)
        tables._set(pools, sliding_window, max_context_len, layout, check_reserved)
        return tables

    def _set(
        self,
        pools: Mapping[str, PoolAddress],
        sliding_window: int,
        max_context_len: int,
        layout: KVLayout | None,
        check_reserved: bool,
    ) -> None:
        addresses = op_addresses(pools)
        self.pools: dict[str, PoolAddress] = {pool: pools[pool] for pool in POOLS if pool in pools}
        self.layout = layout
        self.sliding_window = sliding_window
        self.max_context_len = max_context_len
        self.check_reserved = check_reserved
        self.op_tables: list[Tensor | None] = [address.table for address in addresses]
        self.kinds: tuple[int, ...] = tuple(address.kind for address in addresses)
        self.op_pools = op_pools(addresses)
        kept = {pool for name in ("full", "swa") for pool in with_bases(name, self.pools)}
        self.op_token_pools = op_pools(
            [address if pool in kept else NO_ADDRESS for pool, address in zip(POOLS, addresses, strict=True)]
        )
        self.written_pools = op_pools(
            [
                address if isinstance(pools.get(pool), PageTable | SlotTable) else NO_ADDRESS
                for pool, address in zip(POOLS, addresses, strict=True)
            ]
        )

    @cached_property
    def calls(self) -> KeptSizes[Any]:
        """Steps of these tables by what decides their sizes (``ops.step``)."""
        return KeptSizes()

    def __getstate__(self) -> dict[str, Any]:
        """A copy, or what comes out of a file, has made no calls."""
        return {name: value for name, value in self.__dict__.items() if name != "calls"}

    @property
    def device(self) -> torch.device:
        """Where the tables are; the CPU when no pool has one."""
        if self.layout is not None:
            return torch.device(self.layout.device)
        return next((table.device for table in self.op_tables if table is not None), torch.device("cpu"))

    @property
    def max_requests(self) -> int:
        """Rows that every table has; the greatest int32 when no pool has one."""
        tables = (address.table for address in self.pools.values() if isinstance(address, PageTable | SlotTable))
        return min((table.shape[0] for table in tables), default=INT32_MAX)

    def has_pool(self, pool: str) -> bool:
        """Whether the pool exists."""
        return pool in self.pools

    def has_pages(self, pool: str) -> bool:
        """Whether the pool exists and knows pages, so that there can be a page table of it."""
        return self.kinds[POOLS.index(pool)] in KINDS_WITH_PAGES

    def page_size_of(self, pool: str) -> int:
        """Slots of a page of the pool; 1 where it knows no pages.

        Raises:
            KeyError: the pool does not exist.
        """
        return page_size_of(pool, self.pools)

    def select(self, *pools: str) -> RequestTables:
        """The same tables, in the same memory, as if only the named pools existed: ops return nothing for the others.

        Raises:
            ValueError: a pool that does not exist, or a rule without its base.
        """
        for pool in pools:
            if pool not in self.pools:
                raise ValueError(f"RequestTables.select: pool is {pool!r}, expected one of {', '.join(self.pools)}")
        kept = {pool: self.pools[pool] for pool in pools}
        layout = self.layout and self.layout.select(*pools)
        return self.unchecked(kept, self.sliding_window, self.max_context_len, layout, self.check_reserved)

    @cached_property
    def page_tables(self) -> tuple[list[Tensor], list[int]]:
        """What ops that move pages take: the tables of the pools that exist, and a page size for each of the six pools,
        0 for one that does not exist.

        Raises:
            ValueError: a pool has no table of pages.
        """
        for pool, address in self.pools.items():
            if not isinstance(address, PageTable):
                kind = type(address).__name__
                raise ValueError(f"RequestTables.page_tables: pools[{pool!r}] is a {kind}, expected a PageTable")
        tables = [table for table in self.op_tables if table is not None]
        return tables, [self.page_size_of(pool) if self.has_pool(pool) else 0 for pool in POOLS]

    def table(self, pool: str) -> Tensor | None:
        """The tensor of a pool's table or mapping; None where it has none."""
        return self.op_tables[POOLS.index(pool)]


def asked_to_check() -> bool:
    """Whether the environment asks steps to look for slots first."""
    return os.environ.get("DSV4_CHECK_RESERVED") == "1"

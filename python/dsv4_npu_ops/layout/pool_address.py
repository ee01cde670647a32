"""How a pool is addressed: where the slot of a unit of a request stands (docs/spec.md, addressing).

Each class describes one pool to the ops and copies nothing. Engines hand over what they have: tables of pages or of
slots, mappings, rings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dsv4_npu_ops.layout.kv_layout import INT32_MAX, POOLS, RAW_TOKENS_PER_SLOT

NO_POOL, PAGES, SLOTS, MAPPED, PAGE_RING, REQUEST_RING, BANK = range(7)
"""Kinds as the ops number them (csrc/common/pool_address.h)."""

KINDS_WITH_PAGES = (PAGES, SLOTS, MAPPED)
"""Those of which there can be a page table; the others are places of a state."""


class OpAddress(NamedTuple):
    """What an op takes for one pool: its tensor, and what else says where its slots stand."""

    table: Tensor | None
    kind: int
    page_size: int = 1
    tokens: int = 1
    ring: int = 1
    base: int = 0

    @property
    def number(self) -> int:
        """All but the tensor in one number (csrc/torch/pool_addresses.h): a call takes longer for each that it has."""
        sizes = [size.bit_length() - 1 for size in (self.page_size, self.tokens, self.ring)]
        return self.kind | sizes[0] << 3 | sizes[1] << 8 | sizes[2] << 13 | self.base << 18


NO_ADDRESS = OpAddress(None, NO_POOL)


def kind_of(number: int) -> int:
    """The kind of an address, of its number."""
    return number & 7


OpPools = tuple[list[Tensor], list[int]]
"""What an op takes for the six pools: the tensors of those that have one, and a number for each pool."""


def op_pools(addresses: Sequence[OpAddress]) -> OpPools:
    """Of the six pools' addresses, in table order."""
    tables = [address.table for address in addresses if address.table is not None]
    return tables, [address.number for address in addresses]


@dataclass(frozen=True, eq=False)
class PageTable:
    """A table of pages: the slots of page ``j`` of request ``q`` lie in page ``table[q, j]``, 0 or less for none.

    Args:
        table: ``[requests, columns]`` int32 or int64, rows at any stride. In swa, c4_state and c128_state it may have
            fewer columns than the longest request has pages: page ``j`` then stands in column ``j % columns``, and a
            step whose live pages are more than the columns is refused.
        page_size: slots of a page, a power of two: entries of the pool, not tokens. Blocks of 128 tokens have 128 slots
            of ``full``, 32 of ``c4`` and 1 of ``c128``.
    """

    table: Tensor
    page_size: int


@dataclass(frozen=True, eq=False)
class SlotTable:
    """A table of slots: unit ``u`` of request ``q`` has slot ``table[q, u]``, 0 or less for none.

    Args:
        table: ``[requests, columns]`` int32 or int64, rows at any stride, a column for each unit.
        page_size: slots of a page, a power of two.
    """

    table: Tensor
    page_size: int


@dataclass(frozen=True)
class DividedSlots:
    """Groups that live in the space of their tokens in another pool: the slot of a group's last token, divided by the
    tokens of a group. Pages are those of the other pool.

    Args:
        base: a pool with a table; its page must hold a group.
    """

    base: str = "full"


@dataclass(frozen=True, eq=False)
class MappedSlots:
    """Slots by a mapping from another pool's slots: token ``t`` has slot ``mapping[slot of t in base]``, 0 or less for
    none.

    Args:
        mapping: ``[slots of base]`` int32 or int64, contiguous.
        page_size: slots of a page of this pool, a power of two.
        base: a pool with a table.
    """

    mapping: Tensor
    page_size: int
    base: str = "full"


@dataclass(frozen=True)
class PageRing:
    """A ring in each page of another pool: ``slot in base // P * ring + slot in base % ring``.

    Args:
        ring: slots of a ring, a power of two.
        base: a pool with a table or a mapping; P is its page size.
    """

    ring: int
    base: str = "swa"


@dataclass(frozen=True)
class RequestRing:
    """A ring a request: token ``t`` of request ``q`` has slot ``q * ring + t % ring``; slot 0 is an ordinary one.

    Args:
        ring: slots of a ring, a power of two.
    """

    ring: int


@dataclass(frozen=True)
class RequestBank:
    """One place a request: every token of request ``q`` has slot ``q``; the kernel that reads it finds the rest
    itself."""


PoolAddress = PageTable | SlotTable | DividedSlots | MappedSlots | PageRing | RequestRing | RequestBank
"""Any of the kinds."""


def check_addresses(pools: Mapping[str, PoolAddress]) -> None:
    """Checks what an engine gives.

    Raises:
        ValueError: an unknown pool, something that is no address, or a table of another type.
    """
    for pool, address in pools.items():
        if pool not in POOLS:
            raise ValueError(f"pools names {pool!r}, expected pools among {', '.join(POOLS)}")
        if not isinstance(address, PoolAddress):
            raise ValueError(f"pools[{pool!r}] is {address!r}, expected a PageTable, a SlotTable or a rule")
        table = table_of(address)
        if isinstance(address, PageTable | SlotTable | MappedSlots) and (
            not isinstance(table, Tensor) or table.dtype not in (torch.int32, torch.int64)
        ):
            given = table.dtype if isinstance(table, Tensor) else repr(table)
            raise ValueError(f"pools[{pool!r}] has a table of {given}, expected an int32 or int64 tensor")


def table_of(address: PoolAddress) -> Tensor | None:
    """The tensor that an address holds itself; None where it is a rule."""
    if isinstance(address, MappedSlots):
        return address.mapping
    return address.table if isinstance(address, PageTable | SlotTable) else None


def op_addresses(pools: Mapping[str, PoolAddress]) -> list[OpAddress]:
    """What the ops take for the six pools, in table order.

    Raises:
        ValueError: a number that is no power of two, or a rule whose base does not fit.
    """
    return [_op_address(pool, pools) for pool in POOLS]


def page_size_of(pool: str, pools: Mapping[str, PoolAddress]) -> int:
    """Slots of a page of the pool; 1 for kinds that know no pages."""
    address = pools[pool]
    if isinstance(address, DividedSlots):
        return page_size_of(address.base, pools) // RAW_TOKENS_PER_SLOT[pool]
    return getattr(address, "page_size", 1)


def with_bases(pool: str, pools: Mapping[str, PoolAddress]) -> list[str]:
    """The pool, and those that its slots are made from by mapping or ring; none where it does not exist."""
    if pool not in pools:
        return []
    address = pools[pool]
    return [pool, *(with_bases(address.base, pools) if isinstance(address, MappedSlots | PageRing) else [])]


def _op_address(pool: str, pools: Mapping[str, PoolAddress]) -> OpAddress:
    address = pools.get(pool)
    if address is None:
        return NO_ADDRESS
    if isinstance(address, PageTable):
        return OpAddress(address.table, PAGES, _power(pool, "page_size", address.page_size))
    if isinstance(address, SlotTable):
        return OpAddress(address.table, SLOTS, _power(pool, "page_size", address.page_size))
    if isinstance(address, RequestRing):
        return OpAddress(None, REQUEST_RING, ring=_power(pool, "ring", address.ring))
    if isinstance(address, RequestBank):
        return OpAddress(None, BANK)
    if address.base not in pools:
        raise ValueError(f"pools[{pool!r}] has base {address.base!r}, expected one of {', '.join(pools)}")
    base = POOLS.index(address.base)
    if isinstance(address, MappedSlots):
        return OpAddress(address.mapping, MAPPED, _power(pool, "page_size", address.page_size), base=base)
    if isinstance(address, PageRing):
        return OpAddress(None, PAGE_RING, ring=_power(pool, "ring", address.ring), base=base)
    return _divided(pool, address, pools)


def _divided(pool: str, address: DividedSlots, pools: Mapping[str, PoolAddress]) -> OpAddress:
    """A table of the base pool, read in units of this one."""
    base, tokens = pools[address.base], RAW_TOKENS_PER_SLOT[pool]
    if not isinstance(base, PageTable | SlotTable) or RAW_TOKENS_PER_SLOT[address.base] != 1:
        raise ValueError(f"pools[{pool!r}] has base {address.base!r}, expected a pool of tokens with a table")
    if base.page_size < tokens:
        raise ValueError(
            f"pools[{pool!r}] has base {address.base!r} with pages of {base.page_size}, expected at least {tokens}"
        )
    table, kind, page_size, *_ = _op_address(address.base, pools)
    return OpAddress(table, kind, page_size // tokens, tokens if kind == SLOTS else 1)


def _power(pool: str, name: str, size: int) -> int:
    if not isinstance(size, int) or not 1 <= size <= INT32_MAX or size & (size - 1):
        raise ValueError(f"pools[{pool!r}] has {name} {size!r}, expected a power of two from 1 up")
    return size

"""SGLang's own tables, as the ops take them.

From 0.5.18 on it has slots of full tokens, from which the others follow by rules. Until 0.5.17 every pool has a table
of slots of its own, and states have pages like everything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import is_
from typing import Any

from torch import Tensor

from dsv4_npu_ops.cache.host_staging import HostStaging
from dsv4_npu_ops.engines.hooks import Unexpected
from dsv4_npu_ops.layout import (
    DividedSlots,
    MappedSlots,
    PageRing,
    PageTable,
    RequestRing,
    RequestTables,
    SlotTable,
)
from dsv4_npu_ops.layout.kept_sizes import KeptSizes
from dsv4_npu_ops.layout.kv_layout import POOLS
from dsv4_npu_ops.layout.pool_address import PoolAddress
from dsv4_npu_ops.ops.step import NO_PAGES, NO_SLOTS

C128_TOKENS = 128
"""Tokens behind an entry of the ratio-128 pool."""

_ATTRIBUTE = "_dsv4_npu_ops_tables"
_SIX_TABLES = ("req_to_token", *(f"req_to_token_{pool}" for pool in POOLS[1:]))
"""Tables of slots until 0.5.17, in table order."""


@dataclass(frozen=True, eq=False)
class SglangTables:
    """SGLang's tables and what goes with them.

    Attributes:
        tables: the tables. A draft worker has ``full`` and ``swa`` alone.
        dummy_slots: what stands for no slot, by pool in table order: 0, in a state pool the row that it keeps for this.
        dummy_pages: what stands for no page: -1, in ``swa`` 0, which in front of a window a kernel may read.
        page_sizes: slots of a page of the pool of a compress ratio.
        staging: host lengths on their way to the device.
        state_ratios: compress ratios whose states have places by rule, which kernels are told token by token.
        has_state_pages: states have pages, in tables of their own (until 0.5.17).
        sources: the tensors that the tables were made of; the first two are full slots and, from 0.5.18 on, the
            full-to-swa mapping.
        new_buffers: of steps into new buffers, these as the op takes them, by all that decides their sizes.
    """

    tables: RequestTables
    dummy_slots: list[int]
    dummy_pages: list[int]
    page_sizes: dict[int, int]
    staging: HostStaging
    state_ratios: tuple[int, ...]
    has_state_pages: bool
    sources: tuple[Tensor | None, ...]
    new_buffers: KeptSizes[Any] = field(default_factory=KeptSizes)


def tables_of_backend(backend: Any) -> SglangTables:
    """All pools of an attention backend, made once and again when SGLang has replaced a tensor.

    Raises:
        Unexpected: something is not where this plug-in knows it.
    """
    pool = backend.req_to_token_pool
    if hasattr(pool, _SIX_TABLES[1]):
        return _of_six(backend, pool, _window(backend))
    sidecar = pool.req_to_c128_sidecar if backend._dsv4_has_c128 else None
    sources = backend.req_to_token, backend.token_to_kv_pool.full_to_swa_index_mapping, sidecar
    known = _known(backend, sources)
    if known is not None:
        return known
    made = _make(
        sources,
        int(backend.page_size),
        int(pool.c128_page_size) if backend._dsv4_has_c128 else 0,
        bool(backend._dsv4_has_c4),
        _window(backend),
        backend._dsv4_state_pools_by_ratio,
    )
    return _keep(backend, made)


def tables_of_allocator(allocator: Any, pool: Any) -> SglangTables:
    """The pools that an allocator hands out slots of, for lookups that know no window.

    Raises:
        Unexpected: something is not where this plug-in knows it.
    """
    if hasattr(pool, _SIX_TABLES[1]):
        return _of_six(allocator, pool, C128_TOKENS)
    sources = pool.req_to_token, allocator.full_to_swa_index_mapping, pool.req_to_c128_sidecar
    known = _known(allocator, sources)
    if known is not None:
        return known
    made = _make(sources, int(allocator.page_size), int(pool.c128_page_size), True, C128_TOKENS, {})
    return _keep(allocator, made)


def _of_six(owner: Any, pool: Any, window: int) -> SglangTables:
    """Until 0.5.17; owner: what knows the page size, and keeps the tables."""
    sources = tuple(getattr(pool, name) for name in _SIX_TABLES)
    known = _known(owner, sources)
    return known or _keep(owner, _make_of_six(sources, int(owner.page_size), window))


def _window(backend: Any) -> int:
    return int(backend._dsv4_sliding_window_size)


def _keep(owner: Any, made: SglangTables) -> SglangTables:
    setattr(owner, _ATTRIBUTE, made)
    return made


def _known(owner: Any, sources: tuple[Tensor | None, ...]) -> SglangTables | None:
    known: SglangTables | None = getattr(owner, _ATTRIBUTE, None)
    return known if known is not None and all(map(is_, known.sources, sources)) else None


def _make(
    sources: tuple[Tensor | None, ...],
    page_size: int,
    c128_page_size: int,
    has_c4: bool,
    window: int,
    state_pools: dict[int, Any],
) -> SglangTables:
    slots, mapping, sidecar = sources
    if slots is None or mapping is None:
        raise Unexpected("there is no req_to_token or no full-to-swa mapping")
    pools: dict[str, PoolAddress] = {"full": SlotTable(slots, page_size), "swa": MappedSlots(mapping, page_size)}
    context, dummy_slots, dummy_pages = slots.shape[1], list(NO_SLOTS), list(NO_PAGES)
    dummy_pages[POOLS.index("swa")] = 0
    if has_c4:
        pools["c4"] = DividedSlots()
    if sidecar is not None:
        pools["c128"] = PageTable(sidecar, c128_page_size)
        # Rows of slots are a little longer than the longest request; no group lies in the excess.
        context = min(context, (sidecar.shape[1] * c128_page_size + 1) * C128_TOKENS - 1)
    for ratio, state_pool in state_pools.items():
        ring = int(state_pool.ring_size)
        pool = f"c{ratio}_state"
        pools[pool] = PageRing(ring) if ratio == 4 else RequestRing(ring)
        dummy_slots[POOLS.index(pool)] = int(state_pool.dummy_state_loc)
    tables = RequestTables.of(pools, sliding_window=window, max_context_len=context)
    return SglangTables(
        tables,
        dummy_slots,
        dummy_pages,
        _page_sizes(tables),
        HostStaging(slots.device),
        tuple(state_pools),
        False,
        (slots, mapping, sidecar),
    )


def _make_of_six(sources: tuple[Tensor | None, ...], page_size: int, window: int) -> SglangTables:
    pools = {pool: SlotTable(table, page_size) for pool, table in zip(POOLS, sources, strict=True) if table is not None}
    if len(pools) != len(POOLS):
        raise Unexpected("a table of slots is missing")
    context = pools["full"].table.shape[1]
    dummy_pages = list(NO_PAGES)
    dummy_pages[POOLS.index("swa")] = 0
    tables = RequestTables.of(pools, sliding_window=window, max_context_len=context)
    return SglangTables(
        tables,
        list(NO_SLOTS),
        dummy_pages,
        _page_sizes(tables),
        HostStaging(pools["full"].table.device),
        (),
        True,
        sources,
    )


def _page_sizes(tables: RequestTables) -> dict[int, int]:
    return {ratio: tables.page_size_of(f"c{ratio}") for ratio in (4, 128) if tables.has_pool(f"c{ratio}")}

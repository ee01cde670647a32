"""Shapes of the six KV pools and of the request tables (docs/spec.md, model and pools)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import index

import torch

from dsv4_npu_ops.npu_library import require_npu

POOLS: tuple[str, ...] = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
"""Pool names in table order, the order in which pools are checked, filled and reported everywhere."""

RAW_TOKENS_PER_SLOT: dict[str, int] = {
    "full": 1,
    "swa": 1,
    "c4": 4,
    "c128": 128,
    "c4_state": 1,
    "c128_state": 1,
}
"""Raw tokens that one slot (unit) of each pool stands for."""

INT32_MAX = 2**31 - 1
"""What ops and tables count rows, positions and slots in."""

WINDOWED_POOLS: tuple[str, ...] = ("swa", "c4_state", "c128_state")
"""Pools whose pages are freed while the request lives."""


@dataclass(frozen=True)
class KVLayout:
    """What every op and the allocator must agree on.

    Args:
        page_size: slots in a page, a power of two: one number for every pool, or a mapping with one for each pool that
            exists.
        sliding_window: tokens that the sliding-window layers attend to, the current one included.
        max_requests: rows of the request tables; a request id is a row, ``0 <= id < max_requests``.
        max_context_len: longest request in raw tokens, drafts included.
        num_pages: usable pages of each pool that exists, with ids ``1..n`` (page 0 is reserved and not counted).
            A pool without an entry does not exist: its tables and outputs are empty. 0 pages is an exhausted pool.
            Without any pool a layout still tells sizes, but no allocator takes it.
        device: where tables and free lists live, a CPU or an NPU.
        ring_columns: by pool, among swa, c4_state and c128_state: columns of its request table where it is to have
            fewer than the longest request has pages; page ``j`` then stands in column ``j % columns``.

    Raises:
        ValueError: an argument out of range, an unknown pool name or another kind of device.
        RuntimeError: the device is an NPU and something that it needs is missing.

    Source: docs/spec.md, model and pools; addressing.
    """

    page_size: int | Mapping[str, int] = 128
    sliding_window: int = 128
    max_requests: int = 64
    max_context_len: int = 4096
    num_pages: dict[str, int] = field(default_factory=dict)
    device: torch.device | str = "cpu"
    ring_columns: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("num_pages", "ring_columns"):
            if not isinstance(getattr(self, name), Mapping):
                raise ValueError(f"KVLayout: {name} is {getattr(self, name)!r}, expected a dict by pool")
        kind = str(self.device).split(":")[0]
        if kind == "npu":
            require_npu(f"KVLayout: device {str(self.device)!r}")
        elif kind != "cpu":
            raise ValueError(f"KVLayout: device is {str(self.device)!r}, expected a cpu or npu device")
        # Copies of dicts: the caller may go on using its own.
        for name in ("page_size", "sliding_window", "max_requests", "max_context_len", "num_pages", "ring_columns"):
            object.__setattr__(self, name, _integers(name, getattr(self, name)))
        self._check_pools()
        self._check_sizes()

    def _check_pools(self) -> None:
        for name in ("num_pages", "ring_columns"):
            for pool in getattr(self, name):
                if pool not in POOLS:
                    raise ValueError(f"KVLayout: {name} names pool {pool!r}, expected one of {', '.join(POOLS)}")
        for pool in self.ring_columns:
            if pool not in WINDOWED_POOLS or pool not in self.num_pages:
                raise ValueError(
                    f"KVLayout: ring_columns names pool {pool!r}, "
                    f"expected an existing one of {', '.join(WINDOWED_POOLS)}"
                )
        if isinstance(self.page_size, dict) and set(self.page_size) != set(self.num_pages):
            raise ValueError(
                f"KVLayout: page_size names {sorted(self.page_size)}, expected the pools {sorted(self.num_pages)}"
            )

    def _check_sizes(self) -> None:
        for name, size in self._page_sizes().items():
            if not 1 <= size <= 2**30 or size & (size - 1):
                raise ValueError(f"KVLayout: {name} is {size}, expected a power of two from 1 to 2**30")
        for name in ("sliding_window", "max_requests", "max_context_len"):
            if not 1 <= getattr(self, name) <= INT32_MAX:
                raise ValueError(f"KVLayout: {name} is {getattr(self, name)}, expected 1 to {INT32_MAX} (int32)")
        for pool, pages in self.num_pages.items():
            if pages < 0 or (pages + 1) * self.page_size_of(pool) > INT32_MAX:
                raise ValueError(
                    f"KVLayout: num_pages[{pool!r}] is {pages}, expected 0 or more with all slots within int32"
                )
        for pool, columns in self.ring_columns.items():
            if columns < 1:
                raise ValueError(f"KVLayout: ring_columns[{pool!r}] is {columns}, expected at least 1")

    def _page_sizes(self) -> dict[str, int]:
        if isinstance(self.page_size, dict):
            return {f"page_size[{pool!r}]": size for pool, size in self.page_size.items()}
        return {"page_size": self.page_size}  # type: ignore[dict-item]

    def has_pool(self, pool: str) -> bool:
        """Whether the pool exists."""
        return pool in self.num_pages

    def has_pages(self, pool: str) -> bool:
        """Whether the pool exists: all of them have pages here."""
        return self.has_pool(pool)

    def page_size_of(self, pool: str) -> int:
        """Slots in a page of the pool.

        Raises:
            KeyError: page sizes were given by pool, and the pool does not exist.
        """
        return self.page_size[pool] if isinstance(self.page_size, Mapping) else self.page_size

    def num_units(self, pool: str, num_tokens: int) -> int:
        """Complete units (slots) of ``pool`` in the first ``num_tokens`` raw tokens."""
        return num_tokens // RAW_TOKENS_PER_SLOT[pool]

    def num_columns(self, pool: str) -> int:
        """Columns of the pool's request table, one a page; 0 when the pool does not exist."""
        if not self.has_pool(pool):
            return 0
        pages = max(1, -(-self.num_units(pool, self.max_context_len) // self.page_size_of(pool)))
        return min(pages, self.ring_columns.get(pool, pages))

    def num_slots(self, pool: str) -> int:
        """Slots that a KV tensor of this pool needs, the reserved page included; 0 when the pool does not exist."""
        return (self.num_pages[pool] + 1) * self.page_size_of(pool) if self.has_pool(pool) else 0

    def pages_needed(self, num_tokens: int) -> dict[str, int]:
        """Pages of every pool that the units of ``num_tokens`` raw tokens occupy, starting from an empty request; a
        pool that does not exist needs none."""
        if num_tokens < 0:
            raise ValueError(f"KVLayout.pages_needed: num_tokens is {num_tokens}, expected at least 0")
        return {
            pool: -(-self.num_units(pool, num_tokens) // self.page_size_of(pool)) if self.has_pool(pool) else 0
            for pool in POOLS
        }

    def select(self, *pools: str) -> KVLayout:
        """The same layout with the named pools only."""

        def kept(numbers: Mapping[str, int]) -> dict[str, int]:
            return {pool: number for pool, number in numbers.items() if pool in pools}

        page_size = kept(self.page_size) if isinstance(self.page_size, Mapping) else self.page_size
        return replace(self, page_size=page_size, num_pages=kept(self.num_pages), ring_columns=kept(self.ring_columns))


def _integers(name: str, value: int | Mapping[str, int]) -> int | dict[str, int]:
    """A number, or numbers by pool, as plain integers."""
    if isinstance(value, Mapping):
        return {pool: _integer(f"{name}[{pool!r}]", number) for pool, number in value.items()}
    return _integer(name, value)


def _integer(name: str, value: int) -> int:
    try:
        return index(value)
    except TypeError:
        raise ValueError(f"KVLayout: {name} is {value!r}, expected an integer") from None

"""Shapes of the six KV pools and of the request tables (docs/spec.md, model and pools)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class KVLayout:
    """What every op and the allocator must agree on.

    Args:
        page_size: slots in a page, a power of two, the same for every pool.
        sliding_window: tokens that the sliding-window layers attend to, the current one included.
        max_requests: rows of the request tables; a request id is a row, ``0 <= id < max_requests``.
        max_context_len: longest request in raw tokens, drafts included.
        num_pages: usable pages of each pool that exists, with ids ``1..n`` (page 0 is reserved and not counted).
            A pool without an entry does not exist: its tables and outputs are empty. 0 pages is an exhausted pool.
            Without any pool a layout still tells sizes, but no allocator takes it.
        device: where tables and free lists live, a CPU or an NPU.

    Raises:
        ValueError: an argument out of range, an unknown pool name or another kind of device.
        RuntimeError: the device is an NPU and something that it needs is missing.

    Source: docs/spec.md, model and pools; Python surface.
    """

    page_size: int = 128
    sliding_window: int = 128
    max_requests: int = 64
    max_context_len: int = 4096
    num_pages: dict[str, int] = field(default_factory=dict)
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        if not isinstance(self.num_pages, Mapping):
            raise ValueError(f"KVLayout: num_pages is {self.num_pages!r}, expected a dict of pages by pool")
        kind = str(self.device).split(":")[0]
        if kind == "npu":
            require_npu(f"KVLayout: device {str(self.device)!r}")
        elif kind != "cpu":
            raise ValueError(f"KVLayout: device is {str(self.device)!r}, expected a cpu or npu device")
        for name in ("page_size", "sliding_window", "max_requests", "max_context_len"):
            object.__setattr__(self, name, _integer(name, getattr(self, name)))
        # A copy: the caller may go on using its dict.
        pages = {pool: _integer(f"num_pages[{pool!r}]", pages) for pool, pages in self.num_pages.items()}
        object.__setattr__(self, "num_pages", pages)
        if not 1 <= self.page_size <= 2**30 or self.page_size & (self.page_size - 1):
            raise ValueError(f"KVLayout: page_size is {self.page_size}, expected a power of two from 1 to 2**30")
        for name in ("sliding_window", "max_requests", "max_context_len"):
            if not 1 <= getattr(self, name) <= INT32_MAX:
                raise ValueError(f"KVLayout: {name} is {getattr(self, name)}, expected 1 to {INT32_MAX} (int32)")
        for pool, count in self.num_pages.items():
            if pool not in POOLS:
                raise ValueError(f"KVLayout: num_pages names pool {pool!r}, expected one of {', '.join(POOLS)}")
            if count < 0 or (count + 1) * self.page_size > INT32_MAX:
                raise ValueError(
                    f"KVLayout: num_pages[{pool!r}] is {count}, expected 0 or more with all slots within int32"
                )

    def has_pool(self, pool: str) -> bool:
        """Whether the pool exists."""
        return pool in self.num_pages

    def num_units(self, pool: str, num_tokens: int) -> int:
        """Complete units (slots) of ``pool`` in the first ``num_tokens`` raw tokens."""
        return num_tokens // RAW_TOKENS_PER_SLOT[pool]

    def num_columns(self, pool: str) -> int:
        """Columns of the pool's request table; 0 when the pool does not exist."""
        return max(1, self.num_units(pool, self.max_context_len)) if self.has_pool(pool) else 0

    def num_slots(self, pool: str) -> int:
        """Slots that a KV tensor of this pool needs, the reserved page included; 0 when the pool does not exist."""
        return (self.num_pages[pool] + 1) * self.page_size if self.has_pool(pool) else 0

    def pages_needed(self, num_tokens: int) -> dict[str, int]:
        """Pages of every pool that the units of ``num_tokens`` raw tokens occupy, starting from an empty request."""
        if num_tokens < 0:
            raise ValueError(f"KVLayout.pages_needed: num_tokens is {num_tokens}, expected at least 0")
        return {pool: -(-self.num_units(pool, num_tokens) // self.page_size) for pool in POOLS}


def _integer(name: str, value: int) -> int:
    try:
        return index(value)
    except TypeError:
        raise ValueError(f"KVLayout: {name} is {value!r}, expected an integer") from None

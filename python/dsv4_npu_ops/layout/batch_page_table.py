"""A page table whose rows are those of a batch (docs/spec.md, token slots)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class BatchPageTable:
    """Pages of one pool, row i for request i of a batch; a row may leave out its first pages.

    Attributes:
        table: ``[>= num_reqs, W]`` int32 or int64, rows at any stride; an entry below ``lowest_page`` is no page.
        page_size: units of a page, a power of two.
        ratio: tokens of a unit, a power of two; 1 for units that are tokens.
        first_pages: ``[>= num_reqs]`` int32 or int64: index of the page that stands in column 0 of the row. None: 0 in
            every row.
        lowest_page: 1 where the engine reserves page 0, 0 where it is an ordinary page.

    Source: docs/spec.md, token slots.
    """

    table: Tensor
    page_size: int
    ratio: int = 1
    first_pages: Tensor | None = None
    lowest_page: int = 0

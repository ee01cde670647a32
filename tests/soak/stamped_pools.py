"""Contents of the six pools, as stamps: what a slot was last written with tells whether a read finds what it wants."""

import numpy as np
from reference.kv_allocator import POOLS, TOKENS_PER_UNIT, first_needed

GARBAGE = -1


class StampedPools:
    """One int64 a slot. The stamp of a group is that of its last token.

    Args:
        layout: pools and page size.
    """

    def __init__(self, layout):
        self.layout = layout
        self.stamps = {
            pool: np.full(layout.num_slots(pool), GARBAGE, dtype=np.int64) for pool in POOLS if layout.has_pool(pool)
        }

    def write(self, slots, stamps):
        """Writes a step: stamps of its tokens in batch order, then of its groups by ratio; slot 0 keeps nothing.

        slots: pool -> slots; stamps: 1 (tokens), 4 and 128 (groups) -> stamps.
        """
        for pool, memory in self.stamps.items():
            memory[slots[pool]] = stamps[TOKENS_PER_UNIT[pool]]
            memory[0] = GARBAGE

    def copy_pages(self, copies):
        """copies: pool -> (source pages, destination pages)."""
        for pool, pages in copies.items():
            memory = self.stamps[pool].reshape(-1, self.layout.page_size_of(pool))
            memory[pages[1]] = memory[pages[0]]

    def check_reads(self, page_tables, row, content, length):
        """Everything that a step of a request with ``length`` committed tokens may read is found by its page tables.

        page_tables: pool -> ``[B, W]``; row: its row there; content: stamps of the request's tokens.
        """
        window = self.layout.sliding_window
        seen = np.arange(max(0, length - window + 1), length)
        self.check(page_tables, "swa", row, seen, content[seen])
        for ratio in (4, 128):
            groups = np.arange(length // ratio)
            self.check(page_tables, f"c{ratio}", row, groups, content[groups * ratio + ratio - 1])
            state = np.arange(first_needed(length, ratio), length)
            self.check(page_tables, f"c{ratio}_state", row, state, content[state])

    def check(self, page_tables, pool, row, units, stamps):
        if pool in self.stamps and len(units):
            size = self.layout.page_size_of(pool)
            pages = page_tables[pool][row, units // size]
            assert (pages > 0).all(), f"{pool} has no page for a unit that is still read"
            found = self.stamps[pool][pages.astype(np.int64) * size + units % size]
            assert (found == stamps).all(), f"{pool} holds something else where a unit is still read"

    def check_full(self, table_row, content, length, full_to_swa):
        """The full pool is the engine's own: its slots come straight from its pages, those of the window from them.

        table_row: the request's pages in full; full_to_swa: the allocator's mapping; None if it keeps none.
        """
        size, units = self.layout.page_size_of("full"), np.arange(length)
        slots = table_row[units // size].astype(np.int64) * size + units % size
        assert (self.stamps["full"][slots] == content[:length]).all(), "full holds something else"
        if full_to_swa is not None:
            seen = slice(max(0, length - self.layout.sliding_window + 1), length)
            mapped = self.stamps["swa"][full_to_swa[slots[seen]]]
            assert (mapped == content[seen]).all(), "a full slot is mapped to something else"

"""Requests of the soak, and the pages that one of them may need."""

import numpy as np
from reference.kv_allocator import TOKENS_PER_UNIT

MAX_WIDTH = 8
MAX_CHUNK = 150
STATE_TOKENS = {"c4_state": 7, "c128_state": 127}


class Job:
    """A request: how much of it is cached, and what it is to become."""

    def __init__(self, serial, prompt_len, total_len, width, chunk, received):
        self.serial = serial
        self.prefill_len = prompt_len
        self.total_len = total_len
        self.width = width
        self.chunk = chunk
        self.received = received  # prefilled elsewhere: the prompt's pages are allocated at once and arrive filled
        self.committed = 0
        self.row = None
        self.content = (serial << 20) + np.arange(total_len + MAX_WIDTH)

    @property
    def prefilling(self):
        return self.committed < self.prefill_len

    def retracted(self):
        self.received = False
        self.prefill_len = max(self.prefill_len, self.committed)
        self.committed, self.row = 0, None


def pages_of_one(page_sizes, context_len, window):
    """Pages that a request which has the pools to itself may need at once, or a few more, by pool."""
    pages = {pool: max(1, -(-(context_len // TOKENS_PER_UNIT[pool]) // size)) for pool, size in page_sizes.items()}
    kept = {"swa": window + MAX_CHUNK} | {pool: 2 * tokens for pool, tokens in STATE_TOKENS.items()}
    return pages | {pool: min(pages[pool], _pages_of(kept[pool], page_sizes[pool])) for pool in kept if pool in pages}


def ring_columns_of_one(page_sizes, window):
    """Columns with which the ring of a windowed pool never refuses a step: page tables span a whole chunk, of whose
    states only the end is kept."""
    kept = {"swa": window} | {pool: 2 * tokens for pool, tokens in STATE_TOKENS.items()}
    return {pool: _pages_of(kept[pool] + MAX_CHUNK, page_sizes[pool]) for pool in kept if pool in page_sizes}


def _pages_of(tokens, page_size):
    """Of the tokens that are kept: evicted to one step behind, reserved two verifies ahead."""
    return (tokens + 3 * MAX_WIDTH) // page_size + 4

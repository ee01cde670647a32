"""A KVAllocator that runs beside the plain-Python model and is checked against the invariants after every call."""

from collections import Counter

import numpy as np
import torch
from reference.kv_allocator import POOLS, AllocatorModel, Exhausted, Rejected

import dsv4_npu_ops

OUTPUTS = {pool: f"out_{pool}_loc" for pool in POOLS}


class CheckedAllocator:
    """Every call goes to both; results, errors, tables, lengths and counts must agree, and the invariants hold."""

    def __init__(
        self, page_size, window, max_requests, max_context_len, num_pages, ring_columns, device="cpu", mapped=True
    ):
        """page_size, num_pages and ring_columns by pool."""
        self.layout = dsv4_npu_ops.KVLayout(
            page_size=page_size,
            sliding_window=window,
            max_requests=max_requests,
            max_context_len=max_context_len,
            num_pages=num_pages,
            ring_columns=ring_columns,
            device=device,
        )
        self.tables = dsv4_npu_ops.RequestTables(self.layout)
        mapped = mapped and "full" in num_pages and "swa" in num_pages and page_size["full"] == page_size["swa"]
        self.alloc = dsv4_npu_ops.KVAllocator(self.layout, self.tables, full_to_swa=mapped)
        self.model = AllocatorModel(page_size, window, max_requests, max_context_len, num_pages, ring_columns)
        self.backups = []
        self.outcomes = Counter()  # calls by how they ended
        self.checked = {}  # what check_pages last looked at, by pool
        self.known_absent = set()  # request ids that the allocator has said are not running

    @property
    def running(self):
        return sorted(self.model.requests)

    def length(self, req):
        return self.model.requests[req].length

    def alloc_extend(self, reqs, prefixes, seqs, swa_tail=None):
        return self.call(
            lambda: self.alloc.alloc_extend(reqs, prefixes, seqs, swa_tail=swa_tail),
            lambda: self.model.extend(reqs, prefixes, seqs, tail_only=True, may_start=True, swa_tail=swa_tail),
        )

    def reserve_extend(self, reqs, prefixes, seqs):
        return self.call(
            lambda: self.alloc.reserve_extend(reqs, prefixes, seqs),
            lambda: self.model.extend(reqs, prefixes, seqs, tail_only=False, may_start=False),
        )

    def alloc_decode(self, reqs, seqs):
        return self.call(
            lambda: self.alloc.alloc_decode(reqs, seqs),
            lambda: self.model.extend(reqs, [seq - 1 for seq in seqs], seqs, tail_only=False, may_start=False),
        )

    def share_prefix(self, sources, targets, prefixes):
        """Returns where the targets start, and by pool the pages to copy and their copies; None when both refuse."""

        def real():
            shared = self.alloc.share_prefix(sources, targets, prefixes)
            assert all(pages.dtype == torch.int32 for lists in shared.copies.values() for pages in lists)
            copies = {pool: (pages.tolist(), own.tolist()) for pool, (pages, own) in shared.copies.items()}
            return shared.starts, copies

        return self.call(real, lambda: self.model.share(sources, targets, prefixes))

    def evict(self, reqs, lengths):
        self.call(lambda: self.alloc.evict(reqs, lengths), lambda: self.model.evict(reqs, lengths))

    def free(self, reqs):
        self.call(lambda: self.alloc.free(reqs), lambda: self.model.free(reqs))

    def backup(self):
        self.model.backup()
        self.backups.append(self.alloc.backup_state())

    def restore(self):
        backup = self.backups.pop()
        self.call(lambda: self.alloc.restore_state(backup), self.model.restore)

    def discard(self):
        backup = self.backups.pop()
        self.call(lambda: self.alloc.discard_state(backup), self.model.discard)

    def call(self, real, expected):
        """Returns the slots of an allocation, None when both sides refuse the call."""
        try:
            want, refusal = expected(), None
        except (Rejected, Exhausted) as error:
            want, refusal = None, error
        try:
            got, raised = real(), None
        except (ValueError, dsv4_npu_ops.PoolExhausted) as error:
            got, raised = None, error
        self.outcomes["done" if refusal is None else type(refusal).__name__.lower()] += 1
        if isinstance(refusal, Exhausted):
            assert isinstance(raised, dsv4_npu_ops.PoolExhausted), f"expected {refusal!r}, got {raised!r}"
            assert (raised.pool, raised.needed_pages, raised.free_pages) == refusal.args
        elif isinstance(refusal, Rejected):
            assert isinstance(raised, ValueError), f"expected {refusal!r}, got {raised!r}"
        elif raised is not None:
            raise raised
        if isinstance(want, dict):
            # That slots are congruent (invariant 1) the model says.
            for pool, name in OUTPUTS.items():
                assert getattr(got, name).dtype == torch.int32
                assert getattr(got, name).tolist() == want[pool], name
            self.check_writable(want)
        elif isinstance(want, tuple):
            assert got == want
        self.check()
        return got

    def check(self):
        for pool in self.model.pools:
            assert self.tables.table(pool).tolist() == self.model.table(pool), f"table {pool}"
        if self.alloc.full_to_swa is not None:
            assert self.alloc.full_to_swa.tolist() == self.model.full_to_swa
        for pool in self.model.pools:
            available = self.alloc.available_pages(pool)
            assert available == len(self.model.free_pages[pool]), f"free pages of {pool}"
            self.check_pages(pool, available)
        for req in range(self.layout.max_requests):
            if req in self.model.requests:
                assert self.alloc.allocated_len(req) == self.length(req)
                self.known_absent.discard(req)
            elif req not in self.known_absent:  # an error is slow to raise
                try:
                    self.alloc.allocated_len(req)
                except ValueError:
                    self.known_absent.add(req)
                    continue
                raise AssertionError(f"request {req} should not be running")

    def check_writable(self, slots):
        """A step never gets slots of a page that other requests have as well."""
        for pool in self.model.pools:
            table = self.tables.table(pool).numpy()
            for page in {slot // self.layout.page_size_of(pool) for slot in slots[pool]} - {0}:
                assert (table == page).any(axis=1).sum() == 1, f"page {page} of {pool} is shared and handed out"

    def check_pages(self, pool, available):
        """Invariants 2 and 3 from the table: pages exclusive or shared in one column, none lost."""
        table = self.tables.table(pool).numpy()
        state = (table.tobytes(), available)
        if self.checked.get(pool) == state:
            return
        self.checked[pool] = state
        assert (table >= 0).all(), f"a page of {pool} that is none"
        owned, counts = np.unique(table[table > 0], return_counts=True)
        for page, count in zip(owned[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
            assert self.model.owner_counts[pool][page] == count, f"page {page} of {pool} has {count} owners"
            assert len(set(np.nonzero(table == page)[1])) == 1, f"page {page} of {pool} is in two columns"
        assert len(owned) + available == self.layout.num_pages[pool], f"pages of {pool} were lost or made"

    def finish(self):
        """Invariant 7: with every request freed, every pool is as full as at the start."""
        while self.backups:
            self.discard()
        self.free(self.running)
        for pool in self.model.pools:
            assert self.alloc.available_pages(pool) == self.layout.num_pages[pool]
            assert not self.tables.table(pool).any()

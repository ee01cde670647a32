"""A continuous batch without a model: what an engine asks of allocator, tables and metadata ops, at random.

Every allocator call runs beside the plain-Python model (``CheckedAllocator``), metadata are compared with their
oracles, and the pools hold stamps, so that a page which is freed too early, handed out twice or found at the wrong
place is noticed by the request that reads it.
"""

import random
from collections import Counter

import numpy as np
import torch
from cache.checked_allocator import CheckedAllocator
from reference.kv_allocator import POOLS, TOKENS_PER_UNIT, WINDOWED

import dsv4_npu_ops
from soak.job import MAX_CHUNK, MAX_WIDTH, Job, pages_of_one, ring_columns_of_one
from soak.stamped_pools import GARBAGE, StampedPools
from soak.step_oracles import compare_metadata, compare_verify_step

PAGE_SIZES = (1, 4, 16, 64, 128)
CONTEXT_LENS = {1: 200, 4: 300, 16: 400, 64: 500, 128: 700}
MAX_ROWS = 5
ORACLE_SHARE = 0.25  # of the steps whose metadata are compared with the oracles, which take most of the time


class BatchEngine:
    """One cache and its requests; ``step`` is a round of the scheduler.

    Args:
        seed: decides everything.
    """

    def __init__(self, seed):
        self.choose = random.Random(seed)
        page_size = PAGE_SIZES[seed % len(PAGE_SIZES)]
        context_len = CONTEXT_LENS[page_size] + self.choose.randint(0, 5)
        window = self.choose.choice((1, 30, 128))
        # Half of the caches have one page size, the others one a pool; some windowed pools have rings of columns.
        uniform = self.choose.random() < 0.5
        page_sizes = {
            pool: page_size if uniform else self.choose.choice(PAGE_SIZES)
            for pool in POOLS
            if self.choose.random() < 0.95
        }
        needed = pages_of_one(page_sizes, context_len, window)
        pages = {pool: least + self.choose.randint(0, 2 * least) for pool, least in needed.items()}
        columns = ring_columns_of_one(page_sizes, window)
        rings = {pool: columns[pool] for pool in WINDOWED if pool in pages and self.choose.random() < 0.3}
        self.checked = CheckedAllocator(page_sizes, window, MAX_ROWS, context_len, pages, rings)
        self.layout, self.tables = self.checked.layout, self.checked.tables
        self.pools = StampedPools(self.layout)
        mapping = self.checked.alloc.full_to_swa
        self.full_to_swa = None if mapping is None else mapping.numpy()
        angles = torch.arange(context_len)[:, None] * torch.tensor([0.5, 0.25])
        self.rope = dsv4_npu_ops.build_rope_tables(torch.polar(torch.ones_like(angles), angles), torch.float32)
        self.free_rows = list(range(MAX_ROWS))
        self.waiting, self.running = [], []  # in the order of arrival
        self.cached = []  # finished requests that keep their pages for others to start on, the oldest first
        self.serial = 0
        self.events = Counter()

    def step(self):
        """Arrivals, cancellations, a prefill step and a verify step of those who are due."""
        if len(self.waiting) < 4 and self.choose.random() < 0.3:
            self.arrive()
        if self.choose.random() < 0.01:
            self.cancel()
        if self.waiting and (self.free_rows or self.cached) and self.choose.random() < 0.3:
            self.admit()
        if self.choose.random() < 0.1:
            self.try_and_decide()
        self.receive()
        self.prefill()
        self.verify()
        assert self.checked.outcomes["rejected"] == 0

    def finish(self):
        """Invariant 7: when all requests have gone, nothing is lost and nothing is leaked."""
        self.checked.finish()
        return self.events + self.checked.outcomes

    # Requests come and go

    def arrive(self):
        prompt_len = self.choose.choice((self.choose.randint(1, 30), self.choose.randint(1, 250)))
        total_len = min(prompt_len + self.choose.randint(1, 200), self.layout.max_context_len)
        prompt_len = min(prompt_len, total_len)
        self.serial += 1
        chunk = self.choose.choice((self.choose.randint(1, 9), self.choose.randint(1, MAX_CHUNK), MAX_CHUNK))
        width, received = self.choose.randint(1, MAX_WIDTH), self.choose.random() < 0.2
        self.waiting.append(Job(self.serial, prompt_len, total_len, width, chunk, received))
        self.events["arrived"] += 1

    def admit(self):
        """Starts the first that waits; some begin on the prefix of another, as a radix cache lets them."""
        if not self.free_rows:
            self.free([self.cached.pop(0)])
        job = self.waiting.pop(0)
        job.row = self.free_rows.pop(self.choose.randrange(len(self.free_rows)))
        sources = [source for source in self.running + self.cached if source.committed]
        self.running.append(job)
        if sources and not job.received and self.choose.random() < 0.4:
            self.start_on_prefix(job, self.choose.choice(sources))

    def start_on_prefix(self, job, source):
        longest = min(source.committed, job.total_len - 1)
        prefix = self.choose.choice((longest, self.choose.randint(0, longest)))
        shared = self.checked.share_prefix([source.row], [job.row], [prefix])
        if shared is None:
            return  # no page for a copy: it starts from nothing
        (job.committed,), copies = shared
        job.content[: job.committed] = source.content[: job.committed]
        self.pools.copy_pages(copies)
        self.events["shared"] += job.committed > 0

    def free(self, jobs):
        started = [job.row for job in jobs if job.row in self.checked.model.requests]
        if started:
            self.checked.free(started)
        self.free_rows += [job.row for job in jobs]

    def leave(self, jobs):
        self.free(jobs)
        for job in jobs:
            self.running.remove(job)

    def cancel(self):
        everybody = self.waiting + self.running
        if everybody:
            job = self.choose.choice(everybody)
            if job in self.running:
                self.leave([job])
            else:
                self.waiting.remove(job)
            self.events["cancelled"] += 1

    def retract_youngest(self):
        assert self.checked.outcomes["rejected"] == 0, "the allocator has refused a sensible call"
        assert len(self.running) > 1, "a request that has the pools to itself has run out of pages"
        youngest = self.running[-1]
        self.leave([youngest])
        youngest.retracted()
        self.waiting.insert(0, youngest)
        self.events["retracted"] += 1

    # Allocation

    def batch_that_fits(self, due, allocate):
        """Allocates for everybody who is due; drops what is cached and retracts the youngest until it fits.

        Returns jobs and slots.
        """
        while jobs := [job for job in self.running if due(job)]:
            self.choose.shuffle(jobs)
            slots = allocate(jobs)
            if slots is not None:
                return jobs, slots
            if self.cached:
                self.free([self.cached.pop(0)])
            else:
                self.retract_youngest()
        return [], None

    def extend(self, jobs):
        finals = [min(job.committed + job.chunk, job.prefill_len) for job in jobs]
        return self.checked.alloc_extend([job.row for job in jobs], [job.committed for job in jobs], finals)

    def reserve(self, jobs, ahead=0):
        """Room for a verify, and for ``ahead`` more tokens as an engine asks that knows its lengths only by bounds."""
        lens, limit = [job.committed for job in jobs], self.layout.max_context_len
        finals = [min(length + n + ahead, limit) for length, n in zip(lens, self.widths(jobs), strict=True)]
        return self.checked.reserve_extend([job.row for job in jobs], lens, finals)

    def widths(self, jobs):
        return [min(job.width, self.layout.max_context_len - job.committed) for job in jobs]

    def try_and_decide(self):
        """Allocates under one or two backups and takes it back or keeps it; what is taken back comes again alike."""
        verifying = [job for job in self.running if not job.prefilling]
        starting = [job for job in self.running if job.prefilling and not job.received]
        self.checked.backup()
        first = self.reserve(verifying) if verifying else None
        if self.choose.random() < 0.5:
            self.checked.backup()
            if starting:
                self.extend(starting)
            self.checked.restore() if self.choose.random() < 0.7 else self.checked.discard()
        if verifying and self.choose.random() < 0.2:
            self.leave([verifying.pop()])
            first = None
            self.events["cancelled"] += 1
        if self.choose.random() < 0.3:
            self.checked.discard()
            # What has slots but no tokens yet starts again from nothing.
            started = [job.row for job in starting if not job.committed and job.row in self.checked.running]
            if started:
                self.checked.free(started)
            return
        self.checked.restore()
        if first is not None:
            again = self.reserve(verifying)
            assert all(torch.equal(a, b) for a, b in zip(first.in_order(), again.in_order(), strict=True))
        self.events["restored"] += 1

    # Steps

    def receive(self):
        """Requests that were prefilled elsewhere: only the tail of the window is allocated."""
        tail = self.layout.sliding_window + self.choose.randint(0, 9)
        jobs, slots = self.batch_that_fits(
            lambda job: job.prefilling and job.received,
            lambda jobs: self.checked.alloc_extend(
                [job.row for job in jobs], [0] * len(jobs), [job.prefill_len for job in jobs], tail
            ),
        )
        if jobs:
            lens = [job.prefill_len for job in jobs]
            self.write(jobs, slots, lens, lens)
            self.events["received"] += len(jobs)
            self.commit(jobs, lens)

    def prefill(self):
        jobs, slots = self.batch_that_fits(lambda job: job.prefilling and not job.received, self.extend)
        if not jobs:
            return
        rows, lens = [job.row for job in jobs], [job.committed for job in jobs]
        finals = [min(job.committed + job.chunk, job.prefill_len) for job in jobs]
        metadata = dsv4_npu_ops.build_compress_metadata_prefill(
            self.tables, torch.tensor(rows), torch.tensor(lens), torch.tensor(finals), max_seq_len=max(finals)
        )
        if self.choose.random() < ORACLE_SHARE:
            compare_metadata(self.checked, "prefill", metadata, rows, finals, lens, max(finals))
            self.events["compared"] += 1
        self.read_and_write(jobs, slots, metadata, finals, finals)
        self.checked.evict(rows, finals)
        self.events["prefills"] += 1
        self.commit(jobs, finals)

    def verify(self):
        ahead = self.choose.choice((0, 0, 0, MAX_WIDTH))
        jobs, _ = self.batch_that_fits(lambda job: not job.prefilling, lambda jobs: self.reserve(jobs, ahead))
        if not jobs:
            return
        rows, lens, widths = [job.row for job in jobs], [job.committed for job in jobs], self.widths(jobs)
        finals = [length + width for length, width in zip(lens, widths, strict=True)]
        # Padding rows: whatever their request index says is not looked at.
        padding = self.choose.randint(0, 2)
        batch = rows + [self.choose.choice((rows[0], -3, 999)) for _ in range(padding)]
        batch_lens, batch_widths = lens + [0] * padding, widths + [2] * padding
        step = dsv4_npu_ops.build_verify_step(
            self.tables,
            torch.tensor(batch),
            torch.tensor(batch_lens),
            torch.tensor(batch_widths),
            *self.rope,
            max_seq_len=max(finals),
        )
        if self.choose.random() < ORACLE_SHARE:
            compare_verify_step(self.checked, step, self.rope, batch, batch_lens, batch_widths)
            self.events["compared"] += 1
        ends = [length + self.choose.randint(1, width) for length, width in zip(lens, widths, strict=True)]
        self.read_and_write(jobs, step.out_cache_loc, step.metadata, finals, ends)
        # An engine that runs ahead of what it knows evicts to a lower bound.
        self.checked.evict(rows, lens if self.choose.random() < 0.2 else ends)
        self.events["verifies"] += 1
        self.commit(jobs, ends)

    def commit(self, jobs, ends):
        for job, end in zip(jobs, ends, strict=True):
            job.committed = end
        for job in [job for job in jobs if job.committed >= job.total_len]:
            if self.choose.random() < 0.3:
                self.running.remove(job)
                self.cached.append(job)
            else:
                self.leave([job])

    def read_and_write(self, jobs, slots, metadata, finals, ends):
        """A forward: reads what the windows hold, writes up to ``finals``; from ``ends`` on it is garbage."""
        page_tables = {pool: getattr(metadata, f"{pool}_page_table").numpy() for pool in POOLS if pool != "full"}
        for i, job in enumerate(jobs):
            self.pools.check_reads(page_tables, i, job.content, job.committed)
            if self.layout.has_pool("full"):
                pages = self.tables.table("full")[job.row].numpy()
                self.pools.check_full(pages, job.content, job.committed, self.full_to_swa)
        self.write(jobs, slots, finals, ends)

    def write(self, jobs, slots, finals, ends):
        stamps = {ratio: [] for ratio in (1, 4, 128)}
        for job, final, end in zip(jobs, finals, ends, strict=True):
            for ratio, written in stamps.items():
                last = np.arange(job.committed // ratio, final // ratio) * ratio + ratio - 1
                written.append(np.where(last < end, job.content[last], GARBAGE))
        stamps = {ratio: np.concatenate(written) for ratio, written in stamps.items()}
        written = {
            pool: getattr(slots, f"out_{pool}_loc").numpy()[: len(stamps[unit])]
            for pool, unit in TOKENS_PER_UNIT.items()
        }
        self.pools.write(written, stamps)

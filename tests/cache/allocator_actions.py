"""What a scheduler may do to an allocator, with every choice left to a source of integers (hypothesis or a seed)."""

from reference.kv_allocator import POOLS, WINDOWED

from cache.checked_allocator import CheckedAllocator

PAGE_SIZES = (1, 16, 64, 128, 256)
CONTEXT_LENS = {1: 300, 16: 700, 64: 700, 128: 1000, 256: 1400}
MAX_REQUESTS = 4


def small_allocator(page_size, integer):
    """A cache that a few requests can exhaust; integer(low, high) chooses within bounds, both included.

    Half of them have pages of `page_size` in every pool, the others draw a size a pool; some windowed pools have rings.
    """
    uniform = integer(0, 1) == 0
    context_len = CONTEXT_LENS[page_size] + integer(0, 5)
    page_sizes, num_pages, ring_columns = {}, {}, {}
    for pool in POOLS:
        if integer(0, 9) == 0:
            continue
        size = page_sizes[pool] = page_size if uniform else PAGE_SIZES[integer(0, len(PAGE_SIZES) - 1)]
        per_request = -(-context_len // {"c4": 4, "c128": 128}.get(pool, 1) // size)
        num_pages[pool] = integer(0, 3 * per_request) if integer(0, 3) == 0 else 3 * per_request
        if pool in WINDOWED and integer(0, 3) == 0:
            ring_columns[pool] = integer(1, max(1, 300 // size)) + 1
    if not num_pages:
        page_sizes["full"], num_pages["full"] = page_size, 3 * context_len
    window = (1, 3, 128, page_size, 200)[integer(0, 4)]
    mapped = integer(0, 1) == 1
    return CheckedAllocator(page_sizes, window, MAX_REQUESTS, context_len, num_pages, ring_columns, mapped=mapped)


class AllocatorActions:
    """Keeps the committed length of every request, as an engine would, and calls the allocator with it."""

    def __init__(self, checked, integer):
        self.checked = checked
        self.integer = integer
        self.committed = {}

    def some(self, values):
        """A non-empty choice of `values` in any order."""
        rest = list(values)
        return [rest.pop(self.integer(0, len(rest) - 1)) for _ in range(self.integer(1, len(rest)))]

    def forget_what_is_gone(self):
        lengths = {req: self.checked.length(req) for req in self.checked.running}
        self.committed = {req: min(self.committed.get(req, 0), length) for req, length in lengths.items()}

    def extend(self):
        """A prefill chunk for some rows; free rows start. Seldom with only the tail of the window."""
        reqs = self.some(range(MAX_REQUESTS))
        prefixes = [self.committed.get(req, 0) for req in reqs]
        longest = (1, 40, 150, 600)[self.integer(0, 3)]
        limit = self.checked.layout.max_context_len
        seqs = [min(prefix + self.integer(0, longest), limit) for prefix in prefixes]
        swa_tail = self.integer(0, 200) if self.integer(0, 5) == 0 else None
        if self.checked.alloc_extend(reqs, prefixes, seqs, swa_tail) is not None:
            self.committed.update(zip(reqs, seqs, strict=True))

    def reserve(self):
        """Room for a verify; some of it may be accepted later, or nothing."""
        if self.checked.running:
            reqs = self.some(self.checked.running)
            prefixes = [self.committed[req] for req in reqs]
            limit = self.checked.layout.max_context_len
            self.checked.reserve_extend(reqs, prefixes, [min(p + self.integer(0, 9), limit) for p in prefixes])

    def accept(self):
        """Commits part of what is allocated."""
        for req in self.checked.running:
            room = self.checked.length(req) - self.committed[req]
            self.committed[req] += self.integer(0, min(room, 9))

    def decode(self):
        if self.checked.running:
            reqs = self.some(self.checked.running)
            seqs = [self.committed[req] + 1 for req in reqs]
            if self.checked.alloc_decode(reqs, seqs) is not None:
                self.committed.update(zip(reqs, seqs, strict=True))

    def share(self):
        """Starts some free rows on the committed prefixes of running requests."""
        free = [req for req in range(MAX_REQUESTS) if req not in self.checked.running]
        if self.checked.running and free:
            targets = self.some(free)
            sources = [self.checked.running[self.integer(0, len(self.checked.running) - 1)] for _ in targets]
            prefixes = [self.committed[req] - self.integer(0, min(self.committed[req], 40)) for req in sources]
            shared = self.checked.share_prefix(sources, targets, prefixes)
            if shared is not None:
                self.committed.update(zip(targets, shared[0], strict=True))

    def evict(self):
        if self.checked.running:
            reqs = self.some(self.checked.running)
            self.checked.evict(reqs, [self.committed[req] for req in reqs])

    def free(self):
        if self.checked.running:
            self.checked.free(self.some(self.checked.running)[:2])
            self.forget_what_is_gone()

    def backup(self):
        if len(self.checked.backups) < 3:
            self.checked.backup()

    def restore(self):
        if self.checked.backups:
            self.checked.restore()
            self.forget_what_is_gone()

    def discard(self):
        if self.checked.backups:
            self.checked.discard()

    def anything(self):
        """Arguments without regard for sense: most are refused, and must be refused alike."""
        rows = self.integer(0, 3)
        limit = self.checked.layout.max_context_len
        reqs = [self.integer(-1, MAX_REQUESTS) for _ in range(rows)]
        lengths = [self.checked.length(req) if req in self.checked.running else 0 for req in reqs]
        prefixes = [self.integer(max(-1, length - 150), min(length + 1, limit)) for length in lengths]
        seqs = [min(prefix + self.integer(-1, 300), limit + 1) for prefix in prefixes]
        call = self.integer(0, 5)
        if call == 0:
            self.checked.alloc_extend(reqs, prefixes, seqs)
        elif call == 1:
            self.checked.reserve_extend(reqs, prefixes, seqs)
        elif call == 2:
            self.checked.alloc_decode(reqs, seqs)
        elif call == 3:
            self.checked.evict(reqs, prefixes)
        elif call == 4:
            self.checked.share_prefix([self.integer(-1, MAX_REQUESTS) for _ in reqs], reqs, prefixes)
        else:
            self.checked.free(reqs)
        self.forget_what_is_gone()

    def any_action(self):
        actions = (
            [self.extend] * 3
            + [self.reserve, self.accept, self.decode] * 3
            + [self.evict, self.backup, self.share] * 2
            + [self.free, self.restore, self.discard, self.anything]
        )
        actions[self.integer(0, len(actions) - 1)]()

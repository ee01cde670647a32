"""Plain-Python model of the paged allocator: page ids in lists, tables from what requests own, backups as snapshots."""

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
WINDOWED = ("swa", "c4_state", "c128_state")
TOKENS_PER_UNIT = {"full": 1, "swa": 1, "c4": 4, "c128": 128, "c4_state": 1, "c128_state": 1}


class Rejected(Exception):
    """A call with bad arguments."""


class Exhausted(Exception):
    """A pool lacks pages: (pool, needed, free)."""


def first_needed(length, ratio):
    overlap = {4: 1, 128: 0}[ratio]
    return max(0, (length // ratio - overlap) * ratio)


class Request:
    def __init__(self, serial):
        self.serial = serial
        self.length = 0
        self.pages = {pool: {} for pool in POOLS}  # page index -> page id
        self.units = {pool: set() for pool in POOLS}  # given slots; others in their pages have some too
        self.received = {pool: set() for pool in POOLS}  # page indices that another request took
        self.gone = dict.fromkeys(POOLS, 0)  # units before this one were evicted
        self.left_out = range(0)  # by swa tails, and what lies between several


class AllocatorModel:
    """By pool, num_pages: usable pages, and a pool without an entry does not exist; page_size: slots of a page;
    ring_columns: columns of some windowed pools."""

    def __init__(self, page_size, window, max_requests, max_context_len, num_pages, ring_columns):
        self.page_size = page_size
        self.ring_columns = ring_columns
        self.window = window
        self.max_requests = max_requests
        self.max_context_len = max_context_len
        self.pools = [pool for pool in POOLS if pool in num_pages]
        self.free_pages = {pool: list(range(1, num_pages[pool] + 1)) for pool in self.pools}
        self.requests = {}
        # By full slot; None where the layout has nothing to map.
        self.full_to_swa = None
        if "full" in num_pages and "swa" in num_pages and page_size["full"] == page_size["swa"]:
            self.full_to_swa = [0] * ((num_pages["full"] + 1) * page_size["full"])
        self.snapshots = []
        self.started = 0
        self.takes = 0
        self.owner_counts = {pool: {} for pool in self.pools}  # page id -> requests that own it
        self.taken_at = {pool: {} for pool in self.pools}  # page id -> when it was last taken

    def columns(self, pool):
        pages = max(1, -(-(self.max_context_len // TOKENS_PER_UNIT[pool]) // self.page_size[pool]))
        return min(pages, self.ring_columns.get(pool, pages))

    def table(self, pool):
        """What the request table of a pool holds."""
        rows = [[0] * self.columns(pool) for _ in range(self.max_requests)]
        for req, request in self.requests.items():
            for page_index, page in request.pages[pool].items():
                assert rows[req][page_index % self.columns(pool)] == 0, "two pages in one column"
                rows[req][page_index % self.columns(pool)] = page
        return rows

    def slot(self, pool, req, unit):
        """0 where the request has no page."""
        size = self.page_size[pool]
        page = self.requests[req].pages[pool].get(unit // size, 0) if req in self.requests else 0
        return page and page * size + unit % size

    def window_start(self, pool, length):
        if pool == "swa":
            needed = max(0, length - self.window + 1)
        else:
            needed = first_needed(length, 4 if pool == "c4_state" else 128)
        return needed - needed % self.page_size[pool]

    # Allocation

    def extend(self, reqs, prefixes, seqs, tail_only, may_start, swa_tail=None):
        """Returns dict pool -> list of slots; [] for pools that do not exist."""
        self.reject_unless_distinct(reqs)
        if not len(reqs) == len(prefixes) == len(seqs):
            raise Rejected("sizes differ")
        if swa_tail is not None and swa_tail < 1:
            raise Rejected("swa_tail")
        for req, prefix, seq in zip(reqs, prefixes, seqs, strict=True):
            self.reject_bad_step(req, prefix, seq, tail_only, may_start, swa_tail)
        wanted = {pool: [] for pool in self.pools}  # (request, page index) without a page, in the order of taking
        for pool in self.pools:
            for req, prefix, seq in zip(reqs, prefixes, seqs, strict=True):
                units = self.units_to_allocate(pool, prefix, seq, tail_only, swa_tail)
                owned = self.requests[req].pages[pool] if req in self.requests else {}
                indices = sorted({unit // self.page_size[pool] for unit in units})
                wanted[pool] += [(req, i) for i in indices if i not in owned]
        for pool in self.pools:
            if len(wanted[pool]) > len(self.free_pages[pool]):
                raise Exhausted(pool, len(wanted[pool]), len(self.free_pages[pool]))

        for req, prefix, seq in zip(reqs, prefixes, seqs, strict=True):
            if req not in self.requests:
                self.started += 1
                self.requests[req] = Request(self.started)
            self.requests[req].length = max(self.requests[req].length, seq)
            self.requests[req].left_out = self.left_out_after(req, prefix, seq, swa_tail)
        result = {pool: [] for pool in POOLS}
        for pool in self.pools:
            for req, page_index in wanted[pool]:
                self.requests[req].pages[pool][page_index] = self.take(pool)
            for req, prefix, seq in zip(reqs, prefixes, seqs, strict=True):
                self.requests[req].units[pool].update(self.units_to_allocate(pool, prefix, seq, tail_only, swa_tail))
                u = TOKENS_PER_UNIT[pool]
                result[pool] += [self.slot(pool, req, unit) for unit in range(prefix // u, seq // u)]
        if self.full_to_swa is not None:
            for req, prefix, seq in zip(reqs, prefixes, seqs, strict=True):
                for unit in range(prefix if swa_tail is None else max(prefix, seq - swa_tail), seq):
                    self.full_to_swa[self.slot("full", req, unit)] = self.slot("swa", req, unit)
        return result

    def left_out_after(self, req, prefix, seq, swa_tail):
        before = self.requests[req].left_out
        if swa_tail is not None and seq - swa_tail > prefix:
            both = [prefix, seq - swa_tail, *before]
            return range(min(both), max(both + [last + 1 for last in before]))
        if prefix <= before.start:
            return range(max(before.start, seq), before.stop)
        if seq < before.stop:
            return before
        return range(before.start, min(before.stop, prefix))

    def sees_what_was_left_out(self, req, length):
        left_out = self.requests[req].left_out
        return any(unit in left_out for unit in range(max(0, length - self.window + 1), length))

    def units_to_allocate(self, pool, prefix, seq, tail_only, swa_tail=None):
        if prefix == seq:
            return range(0)
        u = TOKENS_PER_UNIT[pool]
        begin = prefix // u
        if tail_only and pool.endswith("_state"):
            begin = max(begin, self.window_start(pool, seq))
        if swa_tail is not None and pool == "swa":
            tail_start = max(0, seq - swa_tail)
            begin = max(begin, tail_start - tail_start % self.page_size[pool])
        return range(begin, seq // u)

    def reject_bad_step(self, req, prefix, seq, tail_only, may_start, swa_tail):
        if prefix < 0 or seq < prefix or seq > self.max_context_len:
            raise Rejected("lengths")
        if req not in self.requests and (prefix > 0 or not may_start):
            raise Rejected("unknown request")
        if may_start and prefix == 0 and req in self.requests and self.requests[req].length > 0:
            raise Rejected("the row was not freed")
        if prefix > (self.requests[req].length if req in self.requests else 0):
            raise Rejected("prefix beyond the allocated length")
        if prefix == seq:
            return
        for pool in self.pools:
            self.reject_beyond_ring(pool, req, self.units_to_allocate(pool, prefix, seq, tail_only, swa_tail))
        if req not in self.requests:
            return
        for pool in self.pools:
            u = TOKENS_PER_UNIT[pool]
            for page_index in {unit // self.page_size[pool] for unit in range(prefix // u, seq // u)}:
                page = self.requests[req].pages[pool].get(page_index)
                if page is not None and self.owner_counts[pool][page] > 1:
                    raise Rejected("writes a shared page")
            if pool in WINDOWED:
                reads = range(self.window_start(pool, prefix), prefix)
                writes = self.units_to_allocate(pool, prefix, seq, tail_only, swa_tail)
                if any(unit not in self.requests[req].units[pool] for unit in reads):
                    raise Rejected("the window has no slots")
                if any(unit < self.requests[req].gone[pool] for unit in writes):
                    raise Rejected("evicted")
                if pool == "swa" and self.sees_what_was_left_out(req, prefix):
                    raise Rejected("the window reaches what a tail left out")

    def reject_beyond_ring(self, pool, req, units):
        indices = {unit // self.page_size[pool] for unit in units}
        indices |= self.requests[req].pages[pool].keys() if req in self.requests else set()
        if indices and max(indices) - min(indices) >= self.columns(pool):
            raise Rejected("more pages than columns")

    def reject_unless_distinct(self, reqs):
        if any(not 0 <= req < self.max_requests for req in reqs) or len(set(reqs)) != len(reqs):
            raise Rejected("request ids")

    def reject_unless_running(self, reqs):
        self.reject_unless_distinct(reqs)
        if any(req not in self.requests for req in reqs):
            raise Rejected("unknown request")

    # Sharing

    def shareable_len(self, source, prefix):
        for start in range(prefix, 0, -1):
            windows = {pool: self.window_start(pool, start) for pool in self.pools if pool in WINDOWED}
            units = self.requests[source].units
            if all(units[pool].issuperset(range(begin, start)) for pool, begin in windows.items()) and not (
                "swa" in self.pools and self.sees_what_was_left_out(source, start)
            ):
                return start
        return 0

    def share(self, sources, targets, prefixes):
        """Returns (starts, dict pool -> (source pages, destination pages))."""
        self.reject_unless_distinct(targets)
        if not len(sources) == len(targets) == len(prefixes):
            raise Rejected("sizes differ")
        for source, target, prefix in zip(sources, targets, prefixes, strict=True):
            if source not in self.requests or target in self.requests:
                raise Rejected("not running, or running")
            if not 0 <= prefix <= self.requests[source].length:
                raise Rejected("prefix")
        starts = [self.shareable_len(source, prefix) for source, prefix in zip(sources, prefixes, strict=True)]
        for pool in self.pools:
            needed = sum(start // TOKENS_PER_UNIT[pool] % self.page_size[pool] > 0 for start in starts)
            if needed > len(self.free_pages[pool]):
                raise Exhausted(pool, needed, len(self.free_pages[pool]))
        copies = {pool: ([], []) for pool in self.pools}
        for source, target, start in zip(sources, targets, starts, strict=True):
            self.started += 1
            self.requests[target] = Request(self.started)
            self.requests[target].length = start
            left_out = self.requests[source].left_out
            self.requests[target].left_out = range(left_out.start, min(left_out.stop, start))
            for pool in self.pools:
                end = start // TOKENS_PER_UNIT[pool]
                begin = self.window_start(pool, start) if pool in WINDOWED else 0
                size, target_pages = self.page_size[pool], self.requests[target].pages[pool]
                self.requests[target].units[pool] = set(range(begin, end))
                source_pages = self.requests[source].pages[pool]
                for page_index in range(begin // size, -(-end // size)):
                    page = source_pages[page_index]
                    if (page_index + 1) * size <= end:
                        self.requests[target].received[pool].add(page_index)
                        self.owner_counts[pool][page] += 1
                    else:
                        copies[pool][0].append(page)
                        page = self.take(pool)
                        copies[pool][1].append(page)
                    target_pages[page_index] = page
            if self.full_to_swa is not None:
                for unit in range(start - start % self.page_size["full"], start):
                    self.full_to_swa[self.slot("full", target, unit)] = self.slot("swa", target, unit)
        return starts, copies

    def shared_pages(self, req):
        """dict pool -> page indices with several owners."""
        return {
            pool: sorted(index for index, page in pages.items() if self.owner_counts[pool][page] > 1)
            for pool, pages in self.requests[req].pages.items()
            if pool in self.pools
        }

    def take(self, pool):
        page = self.free_pages[pool].pop(0)
        self.takes += 1
        self.taken_at[pool][page] = self.takes
        self.owner_counts[pool][page] = 1
        return page

    # Release

    def drop_page(self, pool, req, page_index):
        """Takes a page from its request and returns its id, or None while others own it."""
        request, size = self.requests[req], self.page_size[pool]
        lives_on = self.owner_counts[pool][request.pages[pool][page_index]] > 1
        for unit in request.units[pool] & set(range(page_index * size, (page_index + 1) * size)):
            self.drop_unit(pool, req, unit, unmap=not lives_on)
        page = request.pages[pool].pop(page_index)
        request.received[pool].discard(page_index)
        self.owner_counts[pool][page] -= 1
        return None if lives_on else page

    def drop_unit(self, pool, req, unit, unmap=True):
        """A unit that the request has no more, and for swa what the mapping says of it: swa goes before full."""
        if self.full_to_swa is not None and pool == "swa" and unmap:
            self.full_to_swa[self.slot("full", req, unit)] = 0
        self.requests[req].units[pool].discard(unit)

    def free_page(self, pool, req, page_index):
        page = self.drop_page(pool, req, page_index)
        if page is not None:
            self.free_pages[pool].append(page)

    def swa_first(self):
        return sorted(self.pools, key=lambda pool: pool != "swa")

    def evict(self, reqs, lengths):
        self.reject_unless_running(reqs)
        if len(reqs) != len(lengths):
            raise Rejected("sizes differ")
        for req, length in zip(reqs, lengths, strict=True):
            if not 0 <= length <= self.requests[req].length:
                raise Rejected("lengths")
        for req, length in zip(reqs, lengths, strict=True):
            request = self.requests[req]
            for pool in self.pools:
                if pool in WINDOWED:
                    request.gone[pool] = max(request.gone[pool], self.window_start(pool, length))
                    for page_index in sorted(request.pages[pool]):
                        if (page_index + 1) * self.page_size[pool] <= request.gone[pool]:
                            self.free_page(pool, req, page_index)

    def free(self, reqs):
        self.reject_unless_running(reqs)
        for req in reqs:
            for pool in self.swa_first():
                for page_index in sorted(self.requests[req].pages[pool]):
                    self.free_page(pool, req, page_index)
            del self.requests[req]

    # Backups: a snapshot says who owned what

    def backup(self):
        self.snapshots.append(
            {
                request.serial: (
                    request.length,
                    request.left_out,
                    {pool: set(request.units[pool]) for pool in self.pools},
                )
                for request in self.requests.values()
            }
        )

    def discard(self):
        self.snapshots.pop()

    def restore(self):
        snapshot = self.snapshots.pop()
        returned = {pool: [] for pool in self.pools}
        # What was shared since goes first; where that leaves no owner, the page is freed like any other.
        for req, request in sorted(self.requests.items(), key=lambda item: item[1].serial):
            if request.serial not in snapshot:
                for pool in self.swa_first():
                    for page_index in sorted(request.received[pool]):
                        self.free_page(pool, req, page_index)
        for req in list(self.requests):
            request = self.requests[req]
            length, left_out, units_then = snapshot.get(request.serial, (None, None, None))
            for pool in self.swa_first():
                kept = units_then[pool] if units_then is not None else set()
                for unit in request.units[pool] - kept:
                    self.drop_unit(pool, req, unit)
                size = self.page_size[pool]
                for page_index in sorted(request.pages[pool]):
                    if request.units[pool].isdisjoint(range(page_index * size, (page_index + 1) * size)):
                        returned[pool].append(self.drop_page(pool, req, page_index))
            if length is None:
                del self.requests[req]
            else:
                request.length, request.left_out = length, left_out
        for pool in self.pools:
            self.free_pages[pool][:0] = sorted(returned[pool], key=self.taken_at[pool].get)

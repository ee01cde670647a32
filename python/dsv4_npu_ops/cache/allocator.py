"""Paged allocation over all six pools (docs/spec.md, allocation; invariants)."""

from threading import Lock
from typing import NoReturn

import torch
from torch import Tensor

from dsv4_npu_ops.cache.host_integers import Integers, host_integer, host_integers
from dsv4_npu_ops.cache.host_staging import HostStaging
from dsv4_npu_ops.cache.work_lists import PART_ROWS, LedgerWork, WorkLists, on_device
from dsv4_npu_ops.layout.kv_layout import POOLS, KVLayout
from dsv4_npu_ops.layout.out_cache_loc import OutCacheLoc
from dsv4_npu_ops.layout.shared_prefix import SharedPrefix
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.caller_errors import caller_errors
from dsv4_npu_ops.ops.map_full_to_swa import MAP_SOURCE_FIELD, MAP_TABLE, map_full_to_swa
from dsv4_npu_ops.ops.release_pages import release_pages
from dsv4_npu_ops.ops.reserve_extend import reserve_extend
from dsv4_npu_ops.ops.share_pages import share_pages

_caller_errors = caller_errors({"full_table": "table of pool full", "swa_table": "table of pool swa"})


class PoolExhausted(RuntimeError):
    """A pool has too few free pages for a call; the call has changed nothing.

    Attributes:
        pool: the first lacking pool in table order.
        needed_pages: pages that the call takes from that pool.
        free_pages: pages that the pool has.

    Source: docs/spec.md, invariants; errors.
    """

    def __init__(self, pool: str, needed_pages: int, free_pages: int) -> None:
        lacking = needed_pages - free_pages
        super().__init__(
            f"pool {pool} lacks {lacking} page{'s' if lacking != 1 else ''}: {needed_pages} needed, {free_pages} free"
        )
        self.pool = pool
        self.needed_pages = needed_pages
        self.free_pages = free_pages

    def __reduce__(self) -> tuple[type["PoolExhausted"], tuple[str, int, int]]:
        return PoolExhausted, (self.pool, self.needed_pages, self.free_pages)


class KVAllocator:
    """Allocates slots of the six pools to requests, writes them into the request tables and takes them back.

    The scheduler calls it on the host's clock; nothing is read back from the device. Which page belongs to whom is
    decided by bookkeeping in C++ that only counts; page ids live in a queue on the device, and one launch a call hands
    them out or takes them back. A call that raises has changed nothing. Threads may share an allocator: a call is one
    step, of which another thread sees all or nothing (docs/spec.md, threads).

    Lengths are raw tokens. Requests and lengths are lists or 1-D integer tensors on the host, one entry a row; a
    request may be named once a call. An extend with ``prefix == seq`` allocates nothing and needs no window.

    Every allocating method returns the ``OutCacheLoc`` (int32, tables' device) of the whole interval asked for,
    reused slots included, and has written the tables: full, swa, c4_state and c128_state have one entry for each
    position in ``[prefix, seq)``, row after row in call order (0 where the request has no page, as where a state
    pool's tail rule takes none), c4 and c128 one for each group in ``[prefix // u, seq // u)``. A pool that does not
    exist has 0 entries.

    Args:
        layout: shapes and page counts.
        tables: request tables of the same layout; only the allocator (or ``write_req_tables``) may write them.
        full_to_swa: keep a mapping from full slots to swa slots, at the cost of one more launch a call.

    Attributes:
        full_to_swa: int64 ``[slots of the full pool]`` on the tables' device, indexed by full slot: the swa slot of the
            same token, 0 while it has none. None unless asked for.

    Raises:
        ValueError: the tables are of another layout or the layout has no pool, or a mapping is asked for and there is
            no full or no swa pool, or their pages differ in size: a page shared in one would be copied in the other.

    Source: docs/spec.md, allocation; invariants.
    """

    def __init__(self, layout: KVLayout, tables: RequestTables, *, full_to_swa: bool = False) -> None:
        for name, value, kind in (("layout", layout, KVLayout), ("tables", tables, RequestTables)):
            if not isinstance(value, kind):
                raise ValueError(
                    f"KVAllocator: {name} is a {type(value).__name__}, expected a {kind.__name__}: (layout, tables)"
                )
        if not layout.num_pages:
            raise ValueError(
                f"KVAllocator: layout.num_pages is empty, expected usable pages of at least one of {', '.join(POOLS)}"
            )
        if tables.layout != layout:
            raise ValueError(f"KVAllocator: tables have {tables.layout}, expected those of {layout}")
        if full_to_swa and not (layout.has_pool("full") and layout.has_pool("swa")):
            raise ValueError(f"KVAllocator: full_to_swa is True, expected pools full and swa in {layout}")
        if full_to_swa and layout.page_size_of("full") != layout.page_size_of("swa"):
            raise ValueError(
                f"KVAllocator: full_to_swa is True, expected one page size for full and swa, got "
                f"{layout.page_size_of('full')} and {layout.page_size_of('swa')}"
            )
        self.layout = layout
        self.tables = tables
        # Around every use of the ledger: decision, launches and commit are one step; ledger and ops release the GIL.
        self._step = Lock()
        self._num_pages = [layout.num_pages.get(pool, 0) for pool in POOLS]
        # All rings in one tensor, so that the ops take one pointer. Made on the host and copied.
        rings = [page for pages in self._num_pages for page in range(1, pages + 1)]
        self._free_pages = torch.tensor(rings, dtype=torch.int32, device="cpu").to(layout.device)
        self._staging = HostStaging(layout.device)
        self._ledger = torch.classes.dsv4_npu_ops.KVLedger(
            [layout.num_pages.get(pool, -1) for pool in POOLS],
            [layout.page_size_of(pool) if layout.has_pool(pool) else 1 for pool in POOLS],
            [layout.num_columns(pool) for pool in POOLS],
            layout.sliding_window,
            layout.max_requests,
            layout.max_context_len,
            full_to_swa,
        )
        self.full_to_swa: Tensor | None = None
        if full_to_swa:
            mapping = torch.zeros(layout.num_slots("full"), dtype=torch.int64, device="cpu")
            self.full_to_swa = mapping.to(layout.device)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "KVAllocator: cannot be pickled or copied, because two would hand out the same pages; "
            "its layout and tables can be"
        )

    @_caller_errors
    def alloc_extend(
        self, reqs: Integers, prefix_lens: Integers, seq_lens: Integers, *, swa_tail: int | None = None
    ) -> OutCacheLoc:
        """Slots for a prefill, or a chunk of one; a prefix of 0 starts a request, in a row without tokens.

        full, swa, c4 and c128 get all units of ``[prefix, seq)``, the state pools only
        ``[max(prefix, state_start(seq)), seq)``: the compressor does not read what lies before from a cache.

        Args:
            reqs: request ids (rows of the tables).
            prefix_lens: tokens that are in the cache already, at most the allocated length.
            seq_lens: tokens afterwards.
            swa_tail: for a decode instance that gets the window from a prefill instance: the swa pool gets only the
                last ``swa_tail`` tokens of each row, at least 1, and what lies before them in the same page. In
                ``full_to_swa`` only the last ``swa_tail`` tokens are set.

        Returns:
            OutCacheLoc: see the class.

        Raises:
            PoolExhausted: a pool has too few pages.
            ValueError: an id out of range, named twice or (with a prefix) not running; a prefix of 0 for a request
                that has tokens and was not freed; lengths negative, decreasing or beyond the table or the allocated
                length; a step that needs evicted or never allocated positions; a ``swa_tail`` below 1.

        Source: docs/spec.md, allocation.
        """
        rows = (
            host_integers("alloc_extend", "reqs", reqs),
            host_integers("alloc_extend", "prefix_lens", prefix_lens),
            host_integers("alloc_extend", "seq_lens", seq_lens),
            None if swa_tail is None else host_integer("alloc_extend", "swa_tail", swa_tail),
        )
        with self._step:
            return self._reserve(self._ledger.alloc_extend(*rows))

    @_caller_errors
    def reserve_extend(self, reqs: Integers, prefix_lens: Integers, seq_lens: Integers) -> OutCacheLoc:
        """Slots for all of ``[prefix, seq)`` in every pool, as a speculative step needs: any accepted part of it must
        find its state later. Requests must be running.

        Arguments, result and errors are those of ``alloc_extend``.

        Source: docs/spec.md, allocation.
        """
        rows = (
            host_integers("reserve_extend", "reqs", reqs),
            host_integers("reserve_extend", "prefix_lens", prefix_lens),
            host_integers("reserve_extend", "seq_lens", seq_lens),
        )
        with self._step:
            return self._reserve(self._ledger.reserve_extend(*rows))

    @_caller_errors
    def alloc_decode(self, reqs: Integers, seq_lens: Integers) -> OutCacheLoc:
        """``reserve_extend`` from ``seq - 1``.

        Args:
            reqs: running requests.
            seq_lens: raw tokens, the new one included, at least 1.

        Returns:
            OutCacheLoc: see the class.

        Raises:
            PoolExhausted, ValueError: as ``reserve_extend``.

        Source: docs/spec.md, allocation.
        """
        rows = host_integers("alloc_decode", "reqs", reqs), host_integers("alloc_decode", "seq_lens", seq_lens)
        with self._step:
            return self._reserve(self._ledger.alloc_decode(*rows))

    def shareable_len(self, source: int, prefix_len: int) -> int:
        """The longest start within ``prefix_len`` tokens that ``share_prefix`` can give: the largest length whose
        sliding window and states, in whole pages, ``source`` still owns and no ``swa_tail`` has left out.

        Args:
            source: a running request.
            prefix_len: raw tokens, at most the allocated length of ``source``.

        Raises:
            ValueError: the request is not running; a length out of range.

        Source: docs/spec.md, shared prefixes.
        """
        row = host_integer("shareable_len", "source", source), host_integer("shareable_len", "prefix_len", prefix_len)
        with self._step:
            return self._ledger.shareable_len(*row)

    @_caller_errors
    def share_prefix(self, sources: Integers, targets: Integers, prefix_lens: Integers) -> SharedPrefix:
        """Starts each target on the cached prefix of a running request.

        Whole pages of the prefix (in swa and the state pools: of the window behind it) belong to both requests from
        then on, at the same page index; a page goes back to its pool when its last owner leaves. The page that the
        prefix ends in is copied: the target gets a new page and the result lists both. A shared page is never
        written: an extend from a prefix inside one is refused, for source and target alike.

        A target starts at ``shareable_len(source, prefix_len)``, which may be 0: it then owns nothing. Its allocated
        length is its start, and its next step has that prefix. ``restore_state`` of an earlier backup ends it.

        Args:
            sources: running requests, one a target; a request may be named several times.
            targets: free rows, each once.
            prefix_lens: raw tokens to share, at most the source's allocated length; all of them final in the cache
                (committed), since they are not written again.

        Raises:
            PoolExhausted: a pool has too few pages for the copies.
            ValueError: a source that is not running, a target that is, an id out of range or a target named twice, a
                length out of range.

        Source: docs/spec.md, shared prefixes.
        """
        rows = (
            host_integers("share_prefix", "sources", sources),
            host_integers("share_prefix", "targets", targets),
            host_integers("share_prefix", "prefix_lens", prefix_lens),
        )
        with self._step:
            work, num_copies, starts, shortage = self._ledger.share_prefix(*rows)
            raise_if_exhausted(shortage)
            lists = on_device(work, self._staging)
            pages = share_pages(
                self.tables,
                self._free_pages,
                lists.segments,
                self._num_pages,
                sum(num_copies),
                num_items=lists.num_items,
            )
            self._map(lists)
            self._ledger.commit_sharing()
        copies, first = {}, 0
        for pool, count in zip(POOLS, num_copies, strict=True):
            if self.layout.has_pool(pool):
                copies[pool] = (pages[0][first : first + count], pages[1][first : first + count])
            first += count
        return SharedPrefix(starts, copies)

    @_caller_errors
    def shared_pages(self, req: int) -> dict[str, list[int]]:
        """Page indices, ascending, of those pages of a running request that other requests own as well, by pool that
        exists. Neither a step nor a transfer (``disagg.state_payloads``) may write them.

        Raises:
            ValueError: the request is not running.

        Source: docs/spec.md, shared prefixes.
        """
        request = host_integer("shared_pages", "req", req)
        with self._step:
            return {
                pool: self._ledger.shared_pages(request, index)
                for index, pool in enumerate(POOLS)
                if self.layout.has_pool(pool)
            }

    @_caller_errors
    def evict(self, reqs: Integers, committed_lens: Integers) -> None:
        """Frees the whole pages of swa, c4_state and c128_state that lie before the windows of ``committed_lens``.

        Windows only move on: a smaller length than before changes nothing. Call it after draft extend.

        Args:
            reqs: running requests.
            committed_lens: ``[len(reqs)]`` raw tokens, at most the allocated length.

        Raises:
            ValueError: an id out of range, named twice or not running; a length out of range.

        Source: docs/spec.md, windows; allocation.
        """
        rows = host_integers("evict", "reqs", reqs), host_integers("evict", "committed_lens", committed_lens)
        with self._step:
            self._release(self._ledger.evict(*rows))

    @_caller_errors
    def free(self, reqs: Integers) -> None:
        """Ends requests: every page that they own goes back, whatever was committed.

        Raises:
            ValueError: an id out of range, named twice or not running.

        Source: docs/spec.md, allocation.
        """
        rows = host_integers("free", "reqs", reqs)
        with self._step:
            self._release(self._ledger.free(rows))

    def backup_state(self) -> int:
        """Opens a backup and returns its handle. Backups nest; each ends with ``restore_state`` or ``discard_state``.

        Bookkeeping of later allocations is kept until then.

        Source: docs/spec.md, invariants.
        """
        with self._step:
            return self._ledger.backup_state()

    @_caller_errors
    def restore_state(self, backup: int) -> None:
        """Takes back every allocation since the backup, in pools, tables and allocated lengths.

        The pages go to the front of their queues in the order in which they were taken, so that the same calls get
        the same slots again. Pages evicted or freed since stay freed, windows keep their later start, and requests
        started since are gone.

        Raises:
            ValueError: not the newest open backup; nothing was changed.

        Source: docs/spec.md, invariants.
        """
        handle = host_integer("restore_state", "backup", backup)
        with self._step:
            self._release(self._ledger.restore_state(handle))

    def discard_state(self, backup: int) -> None:
        """Closes a backup and keeps every allocation; an outer backup can still take them back.

        Raises:
            ValueError: not the newest open backup.

        Source: docs/spec.md, invariants.
        """
        handle = host_integer("discard_state", "backup", backup)
        with self._step:
            self._ledger.discard_state(handle)

    def available_pages(self, pool: str) -> int:
        """Free pages of a pool.

        Raises:
            ValueError: the pool does not exist.

        Source: docs/spec.md, allocation.
        """
        if pool not in POOLS or not self.layout.has_pool(pool):
            existing = ", ".join(name for name in POOLS if self.layout.has_pool(name))
            raise ValueError(f"available_pages: pool is {pool!r}, expected one of {existing}")
        with self._step:
            return self._ledger.available_pages(POOLS.index(pool))

    def allocated_len(self, req: int) -> int:
        """Raw tokens that a running request has slots for, whether committed or not.

        Raises:
            ValueError: the request is not running.

        Source: docs/spec.md, allocation.
        """
        row = host_integer("allocated_len", "req", req)
        with self._step:
            return self._ledger.allocated_len(row)

    def _reserve(self, decision: tuple[LedgerWork, list[int], list[int]]) -> OutCacheLoc:
        work, num_slots, shortage = decision
        raise_if_exhausted(shortage)
        lists = on_device(work, self._staging)
        slots = reserve_extend(self.tables, self._free_pages, lists.segments, self._num_pages, num_slots)
        self._map(lists)
        self._ledger.commit_extension()
        return slots

    def _release(self, work: LedgerWork) -> None:
        if not work[0].shape[0]:
            return
        unmapped = None
        try:
            lists = on_device(work, self._staging)
            # First: it reads the full slots that the release may clear.
            self._map(lists)
            unmapped = lists
            release_pages(self.tables, self._free_pages, lists.segments, self._num_pages, num_items=lists.num_items)
        except BaseException:
            # All or nothing: books and mapping must say what the tables say.
            self._ledger.undo_release()
            if unmapped is not None and unmapped.map_segments is not None:
                unmapped.map_segments[:-PART_ROWS, MAP_SOURCE_FIELD] = MAP_TABLE
                self._map(unmapped)
            raise

    def _map(self, lists: WorkLists) -> None:
        if lists.map_segments is not None and self.full_to_swa is not None:
            map_full_to_swa(self.tables, lists.map_segments, self.full_to_swa, num_items=lists.num_map_items)


def raise_if_exhausted(shortage: list[int]) -> None:
    """shortage: [pool, pages needed, pages free], or [] when every pool has enough."""
    if shortage:
        pool, needed_pages, free_pages = shortage
        raise PoolExhausted(POOLS[pool], needed_pages, free_pages)

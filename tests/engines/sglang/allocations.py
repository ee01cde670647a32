"""SGLang's pools beside copies of them that our functions work on: one history, every effect compared."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from dsv4_npu_ops.engines import hooks, shadow
from dsv4_npu_ops.engines.settings import Mode
from dsv4_npu_ops.engines.sglang import allocator, payloads, table_writes
from engines.sglang.world import C128_PAGE, DEVICE, PAGE, VERSION, KVPool, sgl

HOOKS = (*allocator.HOOKS, *table_writes.HOOKS, *payloads.HOOKS)
if not hasattr(sgl.swa_allocator, "torch_npu"):

    def _scatter(target: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> None:
        target[indices[:, 0]] = values

    sgl.swa_allocator.torch_npu = SimpleNamespace(npu_scatter_nd_update_=_scatter)

GROUP = C128_PAGE * 128
"""Tokens of a page of c128."""


@contextmanager
def ours(*left_out: str, mode: Mode = Mode.ON) -> Iterator[list[str]]:
    """Our functions in the places of SGLang's, less those that are named. Gives what was said: what fell back, and in a
    shadow run what differed."""
    said: list[str] = []
    originals = []
    say_once = hooks.say_once
    hooks.say_once = shadow.say_once = said.append
    for hook in HOOKS:
        if hook.name.rpartition(".")[2] in left_out:
            continue
        replacement = hooks.around(hook, mode)
        if replacement is None:
            continue
        owner = pkgutil.resolve_name(hook.target.rpartition(".")[0])
        name = hook.target.rpartition(".")[2]
        original = vars(owner)[name]
        originals.append((owner, name, original))
        setattr(owner, name, _calling(replacement, original))
    try:
        yield said
    finally:
        hooks.say_once = shadow.say_once = say_once
        for owner, name, original in reversed(originals):
            setattr(owner, name, original)


def _calling(replacement: Any, original: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    return call


@dataclass
class Request:
    """What SGLang's functions read of a request."""

    row: int
    allocated: int = 0
    owned_from: int = 0
    """Tokens before are the radix tree's."""

    @property
    def engine(self) -> Any:
        kv = SimpleNamespace(
            kv_committed_len=self.allocated,
            kv_allocated_len=self.allocated,
            req_pool_idx=self.row,
            holds_kv=True,
        )
        old = SimpleNamespace(kv_allocated_len=self.allocated)
        # 0.5.18 keeps the row and the committed length beside req.kv.
        return SimpleNamespace(
            kv=old if VERSION == "0.5.18" else kv, req_pool_idx=self.row, kv_committed_len=self.allocated
        )


@dataclass
class Cached:
    """A prefix in the radix tree: its full slots, and its c128 pages, one for each GROUP tokens."""

    slots: torch.Tensor
    pages: torch.Tensor

    @property
    def tokens(self) -> int:
        return len(self.slots)


@dataclass
class Pools:
    """SGLang's allocator and request pool, and the radix tree's part in them."""

    rows: int
    context: int
    full_pages: int
    swa_pages: int
    c128_pages: int
    need_sort: bool = False
    requests: dict[int, Request] = field(default_factory=dict)
    tree: list[Cached] = field(default_factory=list)

    def __post_init__(self) -> None:
        kv = KVPool(self.full_pages * PAGE, self.rows, True)
        kv.c128_size = self.c128_pages * C128_PAGE
        self.pool = sgl.request_pool.DSV4NPUReqToTokenPool(self.rows, self.context, str(DEVICE), False)
        sizes = (self.full_pages * PAGE, self.swa_pages * PAGE, PAGE)
        self.allocator = sgl.allocator.DSV4NPUTokenToKVPoolAllocator(
            *sizes, torch.bfloat16, str(DEVICE), kv, self.need_sort
        )
        kv.clear_c128_req_state = lambda row: None  # 0.5.20's name
        self.pool.register_dsv4_allocator(self.allocator)

    # ---- what SGLang's scheduler does ----

    def extend(self, growth: list[tuple[int, int]], swa_tail: int | None = None, *, dtype: Any = torch.int64) -> Any:
        """mem_cache/allocation.py for chunks and reservations: rows and the lengths that they grow to."""
        rows, ends = [row for row, _ in growth], [end for _, end in growth]
        starts = [self.requests[row].allocated for row in rows]
        index = torch.tensor(rows, dtype=torch.int64, device=DEVICE)
        prefix, seq = (torch.tensor(values, dtype=dtype, device=DEVICE) for values in (starts, ends))
        prefix_cpu, seq_cpu = torch.tensor(starts, dtype=dtype), torch.tensor(ends, dtype=dtype)
        last = torch.where(
            prefix > 0, self.pool.req_to_token[index, (prefix - 1).clamp(min=0)].to(dtype), torch.full_like(prefix, -1)
        )
        arguments = [prefix, prefix_cpu, seq, seq_cpu, last, sum(ends) - sum(starts)]
        tables = dict(req_pool_indices=index, req_to_token_pool=self.pool)
        if swa_tail is None:
            bundle = self.allocator.alloc_extend(*arguments, **tables)
        else:
            bundle = self.allocator.alloc_extend_swa_tail(*arguments, swa_tail, **tables)
        if bundle is None:
            return None
        self._write_slots(growth, bundle.out_full_loc)
        if swa_tail is None:
            batch = SimpleNamespace(out_cache_loc_dsv4=bundle, req_to_token_pool=self.pool)
            sgl.hooks.maybe_write_dsv4_extend(batch, torch.tensor(rows), prefix_cpu, seq_cpu)
        else:
            request = self.requests[rows[0]].engine
            sgl.hooks.write_dsv4_prealloc_tables(self.pool, request, starts[0], ends[0], bundle)
        return bundle

    def decode(self, rows: list[int]) -> Any:
        """One token each."""
        starts = [self.requests[row].allocated for row in rows]
        index = torch.tensor(rows, dtype=torch.int64, device=DEVICE)
        lengths = torch.tensor(starts, device=DEVICE)
        last = self.pool.req_to_token[index, lengths - 1]
        seq_cpu = torch.tensor(starts) + 1
        bundle = self.allocator.alloc_decode(
            lengths + 1, seq_cpu, last, req_pool_indices=index, req_to_token_pool=self.pool
        )
        if bundle is None:
            return None
        self._write_slots([(row, start + 1) for row, start in zip(rows, starts, strict=True)], bundle.out_full_loc)
        batch = SimpleNamespace(
            out_cache_loc_dsv4=bundle,
            req_to_token_pool=self.pool,
            req_pool_indices=index,
            req_pool_indices_cpu=torch.tensor(rows),
        )
        sgl.hooks.maybe_write_dsv4_decode(batch, seq_cpu, 1)
        return bundle

    def reserve(self, rows: list[int], tokens: int) -> Any:
        """Spec v2: whole pages."""
        growth = []
        for row in rows:
            allocated = self.requests[row].allocated
            growth.append((row, min(self.context, max(allocated, -(-(allocated + tokens) // PAGE) * PAGE))))
        return self.extend(growth, dtype=torch.int32)

    def _write_slots(self, growth: list[tuple[int, int]], slots: torch.Tensor) -> None:
        done = 0
        for row, end in growth:
            start = self.requests[row].allocated
            self.pool.req_to_token[row, start:end] = slots[done : done + end - start].to(torch.int32)
            self.requests[row].allocated = end
            done += end - start

    def start(self, row: int, cached: int | None = None, tokens: int = 0, matched: int | None = None) -> None:
        """A request in a free row, behind `tokens` of a cached prefix; it is given the pages of `matched` tokens."""
        self.pool.req_to_c128_sidecar[row].zero_()
        self.requests[row] = Request(row, tokens, tokens)
        if cached is not None:
            prefix = self.tree[cached]
            self.pool.req_to_token[row, :tokens] = prefix.slots[:tokens].to(torch.int32)
            pages = prefix.pages[: (tokens if matched is None else matched) // GROUP]
            self.allocator.replace_req_c128_prefix(row, pages, self.pool)

    def cache(self, row: int) -> None:
        """The tree takes a request's whole groups."""
        request = self.requests[row]
        end = request.allocated // GROUP * GROUP
        if request.owned_from or end == 0:
            return
        pages = self.pool.req_to_c128_sidecar[row, : end // GROUP].clone()
        self.allocator.retain_c128_pages(pages)
        self.tree.append(Cached(self.pool.req_to_token[row, :end].to(torch.int64).clone(), pages))
        request.owned_from = end

    def free(self, row: int) -> None:
        """The end of a request, or its retraction."""
        request = self.requests.pop(row)
        own = self.pool.req_to_token[row, request.owned_from : request.allocated].to(torch.int64)
        if len(own):
            self.allocator.free(own)
        self.allocator.free(req=request.engine, req_to_token_pool=self.pool)

    def evict(self, cached: int) -> None:
        """The tree gives a prefix back."""
        prefix = self.tree.pop(cached)
        self.allocator.free(prefix.slots)
        self.allocator.release_c128_pages(prefix.pages)

    def users(self, cached: int) -> list[int]:
        """Rows that stand on a cached prefix."""
        first = int(self.tree[cached].slots[0])
        return [
            row for row, r in self.requests.items() if r.owned_from and int(self.pool.req_to_token[row, 0]) == first
        ]

    # ---- comparison ----

    def parts(self) -> list[Any]:
        names = ("full_attn_allocator", "swa_attn_allocator", "c128_attn_allocator")
        return [getattr(self.allocator, name) for name in names]

    def state(self) -> dict[str, torch.Tensor]:
        """All that an allocation may change."""
        state = {
            "mapping": self.allocator.full_to_swa_index_mapping.clone(),
            "sidecar": self.pool.req_to_c128_sidecar.clone(),
            "refcount": self.allocator.c128_page_refcount.clone(),
            "req_to_token": self.pool.req_to_token.clone(),
        }
        for pool, part in zip(("full", "swa", "c128"), self.parts(), strict=True):
            waiting = part.staged_pages if hasattr(part, "staged_pages") else [part.release_pages]
            state[f"free pages of {pool}"] = part.free_pages.clone()
            state[f"released pages of {pool}"] = torch.cat([part.free_pages[:0], *waiting])
        return state

    def free_lists(self) -> list[tuple[Any, Any]]:
        return [(part, part.free_pages) for part in self.parts()]


def assert_same(theirs: Pools, our: Pools) -> None:
    assert_same_state(theirs.state(), our.state())


def assert_same_state(expected: dict[str, torch.Tensor], given: dict[str, torch.Tensor]) -> None:
    for name, value in expected.items():
        assert torch.equal(given[name], value), (name, given[name].tolist(), value.tolist())


def assert_same_bundles(theirs: Any, our: Any) -> None:
    assert (theirs is None) == (our is None)
    if theirs is None:
        return
    assert type(theirs) is type(our)
    for name in ("out_full_loc", "out_swa_loc", "out_c4_loc", "out_c128_loc"):
        expected, given = getattr(theirs, name), getattr(our, name)
        assert given.dtype == expected.dtype, name
        assert given.tolist() == expected.tolist(), name

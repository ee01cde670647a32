"""SGLang's allocations and table writes beside ours, which run on copies of all that they change.

A table write of ours is part of its allocation's launch. So an allocation leaves its copies on the bundle, and the
table writes of the bundle are compared with what stands there.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Unexpected
from dsv4_npu_ops.engines.sglang import c128_pages
from dsv4_npu_ops.engines.sglang.shadow import compare
from dsv4_npu_ops.engines.sglang.versions import decode_reads_behind_lists

_LOCS = ("out_full_loc", "out_swa_loc", "out_c4_loc", "out_c128_loc")
_PARTS = {"full": "full_attn_allocator", "swa": "swa_attn_allocator", "c128": "c128_attn_allocator"}
_BESIDE = "_dsv4_npu_ops_beside"  # of a bundle: the allocation of ours that was its like, until its tables are written


class _Pools(NamedTuple):
    allocator: Any
    request_pool: Any

    def copies(self) -> _Pools:
        """Pools that can be allocated from and written to without a change of these."""
        allocator, request_pool = copy.copy(self.allocator), copy.copy(self.request_pool)
        for name in _PARTS.values():
            part = copy.copy(getattr(allocator, name))
            # SGLang replaces tensors of free pages, and appends to lists of them.
            vars(part).update({key: list(value) for key, value in vars(part).items() if isinstance(value, list)})
            setattr(allocator, name, part)
        allocator.full_to_swa_index_mapping = allocator.full_to_swa_index_mapping.clone()
        allocator.c128_page_refcount = allocator.c128_page_refcount.clone()
        request_pool.req_to_c128_sidecar = request_pool.req_to_c128_sidecar.clone()
        request_pool._dsv4_allocator = allocator
        c128_pages.release_in_table_writes(request_pool)
        return _Pools(allocator, request_pool)

    def lists(self, *pools: str) -> dict[str, Tensor]:
        """Free pages by pool, and those that wait to be merged with them."""
        lists = {}
        for pool in pools:
            part = getattr(self.allocator, _PARTS[pool])
            waiting = part.staged_pages if hasattr(part, "staged_pages") else [part.release_pages]
            lists[f"free pages of {pool}"] = part.free_pages
            lists[f"released pages of {pool}"] = torch.cat([part.free_pages[:0], *waiting])
        return lists

    def tables(self) -> dict[str, Tensor]:
        return {"sidecar": self.request_pool.req_to_c128_sidecar, "owners": self.allocator.c128_page_refcount}


class _Beside(NamedTuple):
    """An allocation of ours on copies."""

    pools: _Pools
    bundle: Any
    before: _Pools
    c128_list: Tensor
    """SGLang's, behind its own allocation."""
    again: Callable[[], Any]


def beside_allocation(replacement: Callable[..., Any]) -> Callable[..., Any]:
    """The shadow of an allocation: bundle, mapping and lists of free pages are compared."""

    @functools.wraps(replacement)
    def shadow(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        request_pool = kwargs.pop("req_to_token_pool", None)
        if request_pool is None:
            raise Unexpected("no req_to_token_pool")
        engine = _Pools(self, request_pool)
        before = engine.copies()
        mine = before.copies()

        def run(pools: _Pools) -> Any:
            return replacement(original, pools.allocator, *args, req_to_token_pool=pools.request_pool, **kwargs)

        bundle = run(mine)
        if replacement.__name__ == "alloc_decode" and decode_reads_behind_lists() and _has_used_up(mine):
            raise Unexpected("this SGLang reads behind a list of free pages that a decode uses up")
        result = original(self, *args, req_to_token_pool=request_pool, **kwargs)
        if result is None and bundle is None:
            return None  # SGLang may have merged its lists before it found one too short, or lost pages
        theirs, ours = _locs(result), _locs(bundle)
        if result is not None and bundle is not None:
            for fields, pools in ((theirs, engine), (ours, mine)):
                fields |= pools.lists(*_PARTS) | {"mapping": pools.allocator.full_to_swa_index_mapping}
        if compare(replacement.__name__, theirs, ours, lambda: run(before)):
            c128_list = self.c128_attn_allocator.free_pages
            setattr(result, _BESIDE, _Beside(mine, bundle, before, c128_list, lambda: run(before)))
        return result

    return shadow


def _locs(bundle: Any) -> dict[str, Tensor | None]:
    return {name: getattr(bundle, name, None) for name in _LOCS}


def _has_used_up(pools: _Pools) -> bool:
    return any(len(getattr(pools.allocator, _PARTS[pool]).free_pages) == 0 for pool in ("full", "swa"))


def beside_write(replacement: Callable[..., Any], of: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    """The shadow of a table write: the sidecar, the owners of c128 pages and those that were given back are compared.

    Args:
        of: bundle and request pool of a call.
    """

    @functools.wraps(replacement)
    def shadow(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        bundle, request_pool = of(*args, **kwargs)
        beside = getattr(bundle, _BESIDE, None)
        if beside is None:  # written before, or of an allocation that has been said to differ
            return original(*args, **kwargs)
        setattr(bundle, _BESIDE, None)
        engine = _Pools(request_pool._dsv4_allocator, request_pool)
        earlier = beside.before.tables()
        # What has changed since the allocation is not ours to know.
        live = {name: table == earlier[name] for name, table in engine.tables().items()}
        same_list = engine.allocator.c128_attn_allocator.free_pages is beside.c128_list
        result = original(*args, **kwargs)
        c128_pages.release_replaced(beside.pools.request_pool, beside.bundle, list)
        theirs, ours = (
            {**pools.tables(), **(pools.lists("c128") if same_list else {})} for pools in (engine, beside.pools)
        )
        compare(replacement.__name__, theirs, ours, beside.again, live)
        return result

    return shadow

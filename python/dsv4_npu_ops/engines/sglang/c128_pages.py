"""Which columns of SGLang's sidecar may hold c128 pages, known on the host: where new pages may replace others.

All that writes a row of the sidecar is known on the host but for the pages themselves: ``replace_req_c128_prefix``
writes so many first columns, an allocation those of its lengths, ``free`` makes the row 0. So an upper bound of the
columns in use is kept for each row, and an extend whose new pages go behind it replaces nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected

_TOKENS_PER_GROUP = 128
_COLUMNS = "_dsv4_npu_ops_c128_columns"  # of a request pool: list of int by row, or None where nobody keeps it
_REPLACED = "_dsv4_npu_ops_c128_replaced"  # of a bundle: entries of the sidecar, or None once they are released
_ALLOCATOR = "sglang.srt.hardware_backend.npu.dsv4.dsv4_allocator.DSV4NPUTokenToKVPoolAllocator"


def new_columns(prefix: int, seq: int, page_size: int) -> range:
    """Columns of the sidecar that get new pages when a request grows from ``prefix`` to ``seq`` tokens."""
    return range(*(-(-(length // _TOKENS_PER_GROUP) // page_size) for length in (prefix, seq)))


def track(allocator: Any, request_pool: Any) -> None:
    """Starts to keep the columns of a request pool's rows; reads the sidecar then, once."""
    if hasattr(request_pool, _COLUMNS):
        return
    # Nothing is replaced by no pages; a hook that is in place sees it, and one that was refused does not.
    setattr(request_pool, _COLUMNS, None)
    allocator.replace_req_c128_prefix(0, request_pool.req_to_c128_sidecar[0, :0], request_pool)


def written_bundle(allocator: Any, loc: Iterable[Tensor], replaced: Tensor) -> Any:
    """SGLang's bundle of slots, whose pages are in the sidecar and have their owner."""
    from sglang.srt.model_executor.forward_batch_info import DSV4OutCacheLoc

    full_loc, swa_loc, c4_loc, c128_loc = loc
    # As SGLang has it where no group is completed, its type included.
    bundle = DSV4OutCacheLoc(full_loc, swa_loc, c4_loc, c128_loc if c128_loc.shape[0] else allocator._empty_loc)
    setattr(bundle, _REPLACED, replaced)
    return bundle


def is_written(bundle: Any) -> bool:
    """Whether the allocation of a bundle has put its pages into the sidecar."""
    return hasattr(bundle, _REPLACED)


def release_replaced(
    request_pool: Any, bundle: Any, requests: Callable[[], list[int]], host_rows: Iterable[tuple[int, int]]
) -> None:
    """What is left of the table writes of a written bundle: pages that new ones have replaced lose the request.

    Args:
        requests: gives the rows of the request pool; called where c128 pages were taken.
        host_rows: the prefix and final lengths that the bundle was allocated for.
    """
    replaced = getattr(bundle, _REPLACED)
    if replaced is None or replaced.shape[0] == 0:
        return
    columns = [new_columns(prefix, seq, request_pool.c128_page_size) for prefix, seq in host_rows]
    if sum(map(len, columns)) != replaced.shape[0]:
        raise Unexpected("lengths that are not those of the allocation")
    in_use = getattr(request_pool, _COLUMNS)
    done = 0
    for request, new in zip(requests(), columns, strict=True):
        if len(new) == 0:
            continue
        if in_use is None or in_use[request] > new.start:
            request_pool._dsv4_allocator.release_c128_pages(replaced[done : done + len(new)])
        if in_use is not None:
            in_use[request] = max(in_use[request], new.stop)
        done += len(new)
    setattr(bundle, _REPLACED, None)


def replace_req_c128_prefix(
    original: Callable[..., Any], self: Any, req_pool_idx: int, page_ids: Tensor, req_to_token_pool: Any
) -> Any:
    """``replace_req_c128_prefix``, as it is: the columns that it writes are in use."""
    in_use = getattr(req_to_token_pool, _COLUMNS, None)
    if in_use is None:
        in_use = _columns_in_use(req_to_token_pool.req_to_c128_sidecar)
        setattr(req_to_token_pool, _COLUMNS, in_use)
    result = original(self, req_pool_idx, page_ids, req_to_token_pool)
    in_use[req_pool_idx] = max(in_use[req_pool_idx], page_ids.numel())
    return result


def free(
    original: Callable[..., Any],
    self: Any,
    free_index: Tensor | None = None,
    *,
    req: Any = None,
    req_to_token_pool: Any = None,
) -> Any:
    """``free``, as it is: a request that is gone has no columns in use."""
    row = None if req is None else _held_row(req)
    result = original(self, free_index, req=req, req_to_token_pool=req_to_token_pool)
    in_use = getattr(req_to_token_pool, _COLUMNS, None)
    if row is not None and in_use is not None:
        in_use[row] = 0
    return result


def row_of(req: Any) -> Any:
    """The row of a request in the request pool."""
    return _record(req).req_pool_idx


def _record(req: Any) -> Any:
    return req.kv if hasattr(req.kv, "req_pool_idx") else req  # 0.5.18


def _held_row(req: Any) -> int | None:
    """The row that SGLang makes 0, None where it leaves it."""
    holds = max(_record(req).kv_committed_len, req.kv.kv_allocated_len) > 0
    row = row_of(req)
    return int(row) if holds and row is not None else None


def _columns_in_use(sidecar: Tensor) -> list[int]:
    rows = sidecar.tolist()
    return [max((column + 1 for column, page in enumerate(row) if page > 0), default=0) for row in rows]


HOOKS = tuple(
    Hook(f"{_ALLOCATOR}.{replacement.__name__}", replacement, "0.5.18", "0.5.23")
    for replacement in (replace_req_c128_prefix, free)
)

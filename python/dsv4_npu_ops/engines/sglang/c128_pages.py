"""Which columns of SGLang's sidecar may hold c128 pages, known on the host: where new pages may replace others.

All that writes a row of the sidecar is known on the host but for the pages themselves: ``replace_req_c128_prefix``
writes so many first columns, an allocation those of its lengths, ``free`` makes the row 0. So an upper bound of the
columns in use is kept for each row, and an extend whose new pages go behind it replaces nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook

_COLUMNS = "_dsv4_npu_ops_c128_columns"  # of a request pool: list of int by row, or None where nobody keeps it
_WRITES = "_dsv4_npu_ops_table_writes"  # of a request pool: whether table writes release what was replaced
_REPLACED = "_dsv4_npu_ops_c128_replaced"  # of a bundle: what its new pages replaced, and where
_ALLOCATOR = "sglang.srt.hardware_backend.npu.dsv4.dsv4_allocator.DSV4NPUTokenToKVPoolAllocator"


def track(allocator: Any, request_pool: Any) -> None:
    """Starts to keep the columns of a request pool's rows; reads the sidecar then, once."""
    if hasattr(request_pool, _WRITES):
        return
    if not hasattr(request_pool, _COLUMNS):
        # Nothing is replaced by no pages; a hook that is in place sees it, and one that was refused does not.
        setattr(request_pool, _COLUMNS, None)
        allocator.replace_req_c128_prefix(0, request_pool.req_to_c128_sidecar[0, :0], request_pool)
    setattr(request_pool, _WRITES, _table_writes_are_ours())


def release_in_table_writes(request_pool: Any) -> None:
    """Says of a request pool's copy that ``release_replaced`` follows each allocation, and that no columns are kept."""
    setattr(request_pool, _COLUMNS, None)
    setattr(request_pool, _WRITES, True)


def _table_writes_are_ours() -> bool:
    """Whether all table writes know the bundles of our allocations; SGLang's own do nothing without its tables."""
    from sglang.srt.hardware_backend.npu.dsv4 import dsv4_common_hooks as writes

    untouched: tuple[None, list[Any]] = (None, [])

    def knows(write: Callable[[Any, Any], None]) -> bool:
        bundle = SimpleNamespace(**{_REPLACED: untouched})
        write(SimpleNamespace(out_cache_loc_dsv4=bundle, req_to_token_pool=None), bundle)
        return getattr(bundle, _REPLACED) is not untouched

    return (
        knows(lambda batch, bundle: writes.maybe_write_dsv4_extend(batch, None, None, None))
        and knows(lambda batch, bundle: writes.maybe_write_dsv4_decode(batch, None, 1))
        and knows(lambda batch, bundle: writes.write_dsv4_prealloc_tables(None, None, 0, 0, bundle))
    )


def mark_written(bundle: Any, request_pool: Any, replaced: Tensor, new_columns: list[int]) -> None:
    """Says of a bundle that its pages are in the sidecar and have their owner.

    Args:
        replaced: what stood in the sidecar before, for each new page.
        new_columns: row of the batch, begin and end of the columns that got new pages, for each row that did.
    """
    if new_columns and not getattr(request_pool, _WRITES):
        # SGLang's own table writes will find all pages where they would put them, and those that were there gone.
        _release(request_pool, replaced, new_columns)
        new_columns = []
    setattr(bundle, _REPLACED, (replaced, new_columns))


def release_replaced(request_pool: Any, bundle: Any, requests: Callable[[], Sequence[int]]) -> bool:
    """What is left of the table writes of a written bundle: pages that new ones have replaced lose the request.

    Args:
        requests: gives the rows of the request pool, by row of the batch; called where c128 pages were taken.

    Returns:
        Whether the allocation of the bundle has put its pages into the sidecar; nothing is done otherwise.
    """
    written = getattr(bundle, _REPLACED, None)
    if written is None:
        return False
    replaced, new_columns = written
    setattr(bundle, _REPLACED, (replaced, []))  # once
    if not new_columns:
        return True
    in_use = getattr(request_pool, _COLUMNS)
    if in_use is None:
        _release(request_pool, replaced, new_columns)
        return True
    rows, done = requests(), 0
    for i, begin, end in _triples(new_columns):
        row = rows[i]
        if in_use[row] > begin:
            _release(request_pool, replaced[done:], [i, begin, end])
        in_use[row] = max(in_use[row], end)
        done += end - begin
    return True


def _triples(numbers: list[int]) -> Iterator[tuple[int, int, int]]:
    return zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)


def _release(request_pool: Any, replaced: Tensor, new_columns: list[int]) -> None:
    """Row by row, as SGLang does it, which decides the order of its free pages."""
    done = 0
    for _, begin, end in _triples(new_columns):
        request_pool._dsv4_allocator.release_c128_pages(replaced[done : done + end - begin])
        done += end - begin


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

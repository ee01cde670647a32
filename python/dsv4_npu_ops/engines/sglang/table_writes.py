"""SGLang's table writes of c128 pages: the allocation's launch has done them (``allocator.py``), without a loop over
requests or a look at the device, for the lengths that it was called with. Bundles of SGLang's own allocation are
written by SGLang's own functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook
from dsv4_npu_ops.engines.sglang import c128_pages
from dsv4_npu_ops.engines.sglang.allocator_shadow import beside_write

_MODULE = "sglang.srt.hardware_backend.npu.dsv4.dsv4_common_hooks"


def maybe_write_dsv4_extend(
    original: Callable[..., Any],
    batch: Any,
    req_pool_indices_cpu: Tensor,
    prefix_lens_cpu: Tensor,
    seq_lens_cpu: Tensor,
) -> None:
    """``maybe_write_dsv4_extend``, behind the allocation of a prefill chunk or of a reservation."""
    bundle, pool = batch.out_cache_loc_dsv4, batch.req_to_token_pool
    if not c128_pages.release_replaced(pool, bundle, lambda: req_pool_indices_cpu.tolist()):
        original(batch, req_pool_indices_cpu, prefix_lens_cpu, seq_lens_cpu)


def maybe_write_dsv4_decode(original: Callable[..., Any], batch: Any, seq_lens_cpu: Tensor, token_per_req: int) -> None:
    """``maybe_write_dsv4_decode``. SGLang's own waits for the device to know the requests of the batch."""

    def requests() -> list[int]:
        on_host = getattr(batch, "req_pool_indices_cpu", None)
        return (batch.req_pool_indices if on_host is None else on_host).tolist()

    if not c128_pages.release_replaced(batch.req_to_token_pool, batch.out_cache_loc_dsv4, requests):
        original(batch, seq_lens_cpu, token_per_req)


def write_dsv4_prealloc_tables(
    original: Callable[..., Any], req_to_token_pool: Any, req: Any, prefix_len: int, fill_len: int, bundle: Any
) -> None:
    """``write_dsv4_prealloc_tables``, behind a decode instance's reservation of one prompt."""
    if not c128_pages.release_replaced(req_to_token_pool, bundle, lambda: [int(c128_pages.row_of(req))]):
        original(req_to_token_pool, req, prefix_len, fill_len, bundle)


def _of_batch(batch: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
    return batch.out_cache_loc_dsv4, batch.req_to_token_pool


def _of_prompt(req_to_token_pool: Any, req: Any, prefix_len: int, fill_len: int, bundle: Any) -> tuple[Any, Any]:
    return bundle, req_to_token_pool


HOOKS = tuple(
    Hook(
        f"{_MODULE}.{replacement.__name__}",
        replacement,
        "0.5.18",
        "0.5.23",
        beside_write(replacement, of),
        falls_back=True,
    )
    for replacement, of in (
        (maybe_write_dsv4_extend, _of_batch),
        (maybe_write_dsv4_decode, _of_batch),
        (write_dsv4_prealloc_tables, _of_prompt),
    )
)

"""Slots of one verify pass in all pools, by one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected
from dsv4_npu_ops.engines.sglang.shadow import compare
from dsv4_npu_ops.engines.sglang.step_call import NewBuffers, first_rows, launch
from dsv4_npu_ops.engines.sglang.tables import SglangTables, tables_of_allocator
from dsv4_npu_ops.layout import StepRows
from dsv4_npu_ops.layout.buffers import GROUPS, INT32, INT64, Buffer, number_of
from dsv4_npu_ops.layout.step_rows import COMMITTED
from dsv4_npu_ops.ops.step import NewStep

_HOOKS_MODULE = "sglang.srt.hardware_backend.npu.dsv4.dsv4_common_hooks"


def build_verify_bundle(
    original: Callable[..., Any], batch: Any, draft_token_num: int, *, live_seq_lens_cpu: Tensor | None = None
) -> Any:
    """``maybe_build_dsv4_verify_bundle``."""
    pool, reserved = batch.req_to_token_pool, batch.out_cache_loc_dsv4
    if reserved is None or not (hasattr(pool, "req_to_c128_sidecar") or hasattr(pool, "req_to_token_c4")):
        return None
    lens = batch.seq_lens_cpu if live_seq_lens_cpu is None else live_seq_lens_cpu
    if lens is None:
        raise Unexpected("no seq_lens_cpu")
    size, width = batch.req_pool_indices_cpu.shape[0], int(draft_token_num)
    full, requests = batch.out_cache_loc, batch.req_pool_indices
    if full is None or full.shape[0] != size * width or requests is None or requests.shape[0] < size:
        raise Unexpected("out_cache_loc that is not the verified tokens of the batch")
    tables = tables_of_allocator(batch.token_to_kv_pool_allocator, pool)
    on_host = first_rows(lens if isinstance(lens, Tensor) else torch.tensor(lens), size)
    (on_device,) = tables.staging.to_device(on_host)
    rows = StepRows(on_device, COMMITTED, None, width)
    host_rows = rows if on_device is on_host else StepRows(on_host, COMMITTED, None, width)
    step = tables.new_buffers.get((size, width, full.dtype)) or _step(tables, size, width, full.dtype)
    return type(reserved)(full, *launch(step.run, rows, first_rows(requests, size), host_rows=host_rows))


def _step(tables: SglangTables, size: int, width: int, dtype: torch.dtype) -> NewStep:
    """Slots of such verifies, in the order of a bundle; kept with the tables."""
    slots: dict[str, Buffer] = {
        "swa": (INT64, size * width),
        "c4": (number_of(dtype), GROUPS["c4"]),
        "c128": (INT64, GROUPS["c128"]),
    }
    if tables.has_state_pages:
        slots |= {f"c{ratio}_state": (INT32, size * width) for ratio in (4, 128)}
    buffers = NewBuffers(tables, {f"out_{pool}_loc": buffer for pool, buffer in slots.items()})
    return tables.new_buffers.keep((size, width, dtype), buffers.step)


def shadow_build_verify_bundle(
    original: Callable[..., Any], batch: Any, draft_token_num: int, *, live_seq_lens_cpu: Tensor | None = None
) -> Any:
    """SGLang's bundle is used; ours is built beside it and compared."""
    theirs = original(batch, draft_token_num, live_seq_lens_cpu=live_seq_lens_cpu)

    def again() -> Any:
        return build_verify_bundle(original, batch, draft_token_num, live_seq_lens_cpu=live_seq_lens_cpu)

    ours = again()
    fields = ("out_full_loc", "out_swa_loc", "out_c4_loc", "out_c128_loc")
    compare(
        "maybe_build_dsv4_verify_bundle",
        {name: getattr(theirs, name, None) for name in fields},
        {name: getattr(ours, name, None) for name in fields},
        again,
    )
    return theirs


def build_verify_bundle_of_six(original: Callable[..., Any], batch: Any, draft_token_num: int) -> Any:
    """The same until 0.5.17."""
    return build_verify_bundle(original, batch, draft_token_num)


def shadow_build_verify_bundle_of_six(original: Callable[..., Any], batch: Any, draft_token_num: int) -> Any:
    """The same until 0.5.17."""

    def of_six(batch: Any, draft_token_num: int, live_seq_lens_cpu: Tensor | None = None) -> Any:
        return original(batch, draft_token_num)

    return shadow_build_verify_bundle(of_six, batch, draft_token_num)


_TARGET = f"{_HOOKS_MODULE}.maybe_build_dsv4_verify_bundle"
HOOKS = (
    Hook(_TARGET, build_verify_bundle, "0.5.18", "0.5.23", shadow_build_verify_bundle),
    Hook(_TARGET, build_verify_bundle_of_six, "0.5.15", "0.5.17", shadow_build_verify_bundle_of_six),
)

"""Metadata of a step that runs without a graph: chunks, decodes and verifies, in one launch."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from operator import sub
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected
from dsv4_npu_ops.engines.sglang.shadow import compare, live_pages
from dsv4_npu_ops.engines.sglang.step_call import NewBuffers, launch
from dsv4_npu_ops.engines.sglang.tables import SglangTables, tables_of_backend
from dsv4_npu_ops.engines.sglang.versions import installed, without_known_faults
from dsv4_npu_ops.layout import StepRows
from dsv4_npu_ops.layout.buffers import INT32, INT64, Buffer
from dsv4_npu_ops.layout.capacity import group_capacity, page_columns
from dsv4_npu_ops.layout.step_rows import COMMITTED, FINAL, FINAL_RAGGED, PREFILL
from dsv4_npu_ops.ops.step_sizes import step_sizes

_MIXIN = "sglang.srt.hardware_backend.npu.attention.ascend_dsv4_backend.CompressorAscendBackendMixin"
_RATIOS = (4, 128)
_LEAD = {4: 8, 128: 128}


def build_compress_metadata(original: Callable[..., Any], self: Any, forward_batch: Any) -> None:
    """``_build_npu_compress_metadata``: groups, page tables and, where the kernels take them, state tables."""
    step = _plan(self, forward_batch)
    step.publish(self.forward_metadata, step.make())


def shadow_build_compress_metadata(original: Callable[..., Any], self: Any, forward_batch: Any) -> None:
    """SGLang builds; the same is built beside it and compared."""
    step = _plan(self, forward_batch)
    original(self, forward_batch)
    mine = SimpleNamespace()
    step.publish(mine, step.make())
    named = without_known_faults(dict.fromkeys(_COMPARED), forward_batch.forward_mode.is_target_verify())
    theirs = {name: getattr(self.forward_metadata, name, None) for name in named}
    live = live_pages(step.tables.tables, theirs, torch.tensor(step.starts()), torch.tensor(step.finals))
    compare(
        "_build_npu_compress_metadata", theirs, {name: getattr(mine, name, None) for name in named}, step.make, live
    )


_COMPARED = (
    "start_pos",
    "seqused",
    *(f"positions_cmp_padding_c{ratio}" for ratio in _RATIOS),
    *(f"c{ratio}_loc" for ratio in _RATIOS),
    *(f"c{ratio}_page_table" for ratio in _RATIOS),
)


@dataclass(slots=True)
class _EagerStep:
    """A step that is known to be possible; lengths and new tokens of its rows on the host."""

    tables: SglangTables
    make: Callable[[], dict[str, Tensor]]
    finals: list[int]
    widths: int | list[int]
    groups: dict[int, int]
    capacity: int
    cycle_table: Tensor | None

    def starts(self) -> list[int]:
        """Tokens before the step, 0 in padding rows."""
        widths = [self.widths] * len(self.finals) if isinstance(self.widths, int) else self.widths
        return [max(0, final - width) for final, width in zip(self.finals, widths, strict=True)]

    def publish(self, metadata: Any, buffers: dict[str, Tensor]) -> None:
        """Gives SGLang's metadata the names that its kernels read."""
        metadata.start_pos, metadata.seqused = buffers["start_pos"], buffers["seqused"]
        if self.tables.has_state_pages:
            for ratio in _RATIOS:
                setattr(metadata, f"c{ratio}_state_page_table", buffers.get(f"c{ratio}_state_page_table"))
                setattr(metadata, f"c{ratio}_state_loc", buffers.get(f"out_c{ratio}_state_loc"))
            if self.groups:  # the kernel finds the lengths of chunks itself
                metadata.seqused = None
        else:
            metadata.dsv4_cycle_state_block_table = self.cycle_table
            metadata.dsv4_max_input_capacity = self.capacity
            metadata.dsv4_explicit_state_block_tables = {
                ratio: buffers[f"c{ratio}_state_locs"] for ratio in _RATIOS if f"c{ratio}_state_locs" in buffers
            }
        for ratio in _RATIOS:
            if f"positions_c{ratio}" not in buffers:
                continue
            loc = buffers.get(f"out_c{ratio}_loc")
            # A chunk's slots of groups are as many as there are groups.
            setattr(
                metadata, f"c{ratio}_loc", loc if loc is None or ratio not in self.groups else loc[: self.groups[ratio]]
            )
            setattr(metadata, f"positions_cmp_padding_c{ratio}", buffers[f"positions_c{ratio}"])
            setattr(metadata, f"c{ratio}_page_table", buffers[f"c{ratio}_page_table"])


def _plan(self: Any, forward_batch: Any) -> _EagerStep:
    mode = forward_batch.forward_mode
    if mode.is_decode():
        return _rows_of_width(self, forward_batch, 1, False)
    if mode.is_target_verify():
        return _rows_of_width(self, forward_batch, int(forward_batch.spec_info.draft_token_num), True)
    if mode.is_extend_without_speculative():
        return _chunks(self, forward_batch)
    raise Unexpected(f"mode {mode}")


def _rows_of_width(self: Any, forward_batch: Any, width: int, is_verify: bool) -> _EagerStep:
    batch = forward_batch.batch_size
    if is_verify:
        # Host lengths of the batch are L or L + n, by algorithm; those of the metadata are always L + n.
        mirrored = installed() >= (0, 5, 18)
        finals = _host(self.forward_metadata.seq_lens_cpu_int if mirrored else forward_batch.seq_lens_cpu)[:batch]
        if not mirrored:
            finals = [length + width for length in finals]
        rows = StepRows(forward_batch.seq_lens, COMMITTED, None, width)
    else:
        finals = _host(forward_batch.seq_lens_cpu)
        rows = StepRows(forward_batch.seq_lens, FINAL, None, 1)
    tokens = forward_batch.positions.shape[0] if is_verify else batch
    # A verify without a bundle has no slots of groups; a decode without one has slot 0 for all.
    has_bundle = forward_batch.out_cache_loc_dsv4 is not None
    if not has_bundle and not is_verify:
        raise Unexpected("a decode without out_cache_loc_dsv4")
    return _step(self, forward_batch, rows, finals, width, tokens, has_bundle)


def _chunks(self: Any, forward_batch: Any) -> _EagerStep:
    if installed() < (0, 5, 17):
        raise Unexpected("until 0.5.16 chunks are compressed by code that wants other metadata")
    extends, prefixes = forward_batch.extend_seq_lens_cpu, forward_batch.extend_prefix_lens
    finals = _host(forward_batch.seq_lens_cpu)
    if extends is None or prefixes is None:
        raise Unexpected("an extend without extend_seq_lens_cpu or extend_prefix_lens")
    widths, given = _host(extends), forward_batch.extend_prefix_lens_cpu
    if (
        not widths
        or len(widths) != len(finals)
        or (given is not None and _host(given) != list(map(sub, finals, widths)))
    ):
        raise Unexpected("no chunk, or prefix lengths that are not the lengths without the chunk")
    # Of a list torch.tensor takes as long as several small ops.
    host_widths = torch.frombuffer(array("q", widths), dtype=torch.int64)
    host_rows = StepRows(torch.as_tensor(forward_batch.seq_lens_cpu), FINAL_RAGGED, host_widths)
    _, *groups, _, width, _ = launch(step_sizes, host_rows)
    rows = StepRows(forward_batch.seq_lens, PREFILL, prefixes)
    has_bundle = forward_batch.out_cache_loc_dsv4 is not None
    tokens = forward_batch.positions.shape[0]
    step = _step(self, forward_batch, rows, finals, max(1, width), tokens, has_bundle)
    step.widths, step.groups = widths, dict(zip(_RATIOS, groups, strict=True))
    return step


def _step(
    self: Any, forward_batch: Any, rows: StepRows, finals: list[int], width: int, tokens: int, has_bundle: bool
) -> _EagerStep:
    tables, batch = tables_of_backend(self), forward_batch.batch_size
    if not batch == rows.seq_lens.shape[0] == len(finals):
        raise Unexpected("lengths of another number of rows than the batch")
    longest = max(finals, default=0)
    ratios = [ratio for ratio in _RATIOS if ratio in self._dsv4_unique_compress_ratios]
    columns = tuple(page_columns(longest, f"c{ratio}", tables.page_sizes[ratio]) for ratio in ratios)
    pages = max(1, -(-longest // int(self.page_size)))
    arch35 = _is_arch35()
    key = batch, tokens, width, rows.form, has_bundle, columns, pages, arch35
    buffers = tables.new_buffers.get(key)
    if buffers is None:
        wanted: dict[str, Buffer] = {"start_pos": (INT32, batch), "seqused": (INT32, batch)}
        for ratio, count in zip(ratios, columns, strict=True):
            room = group_capacity(tokens, batch, ratio)
            wanted[f"positions_c{ratio}"] = INT64, room
            if has_bundle:
                wanted[f"out_c{ratio}_loc"] = INT32, room
            wanted[f"c{ratio}_page_table"] = INT32, batch, count
        if tables.has_state_pages:
            wanted |= {f"c{ratio}_state_page_table": (INT32, batch, pages) for ratio in _RATIOS}
            if rows.form == FINAL:  # a decode
                wanted |= {f"out_c{ratio}_state_loc": (INT32, batch) for ratio in _RATIOS}
        if not arch35:
            wanted |= {f"c{r}_state_locs": (INT32, batch, _LEAD[r] + width) for r in tables.state_ratios}
        buffers = tables.new_buffers.keep(key, NewBuffers(tables, wanted))
    cycle = forward_batch.req_pool_indices.to(torch.int32).contiguous() if arch35 else None
    make = partial(buffers.make, rows, forward_batch.req_pool_indices)
    return _EagerStep(tables, make, finals, width, {}, width, cycle)


def _host(lengths: Tensor | list[int] | None) -> list[int]:
    if lengths is None:
        raise Unexpected("no seq_lens_cpu")
    return lengths if isinstance(lengths, list) else lengths.tolist()


@cache
def _is_arch35() -> bool:
    """Whether the device is an Atlas A5, by SGLang's own word; until 0.5.19 there is none."""
    try:
        from sglang.srt.hardware_backend.npu.utils import is_npu_arch35
    except ImportError:
        return False
    return bool(is_npu_arch35())


HOOKS = (
    Hook(
        f"{_MIXIN}._build_npu_compress_metadata",
        build_compress_metadata,
        "0.5.15",
        "0.5.23",
        shadow_build_compress_metadata,
    ),
)

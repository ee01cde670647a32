"""The buffers that a captured graph of SGLang reads, refreshed before each replay by one launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected
from dsv4_npu_ops.engines.sglang.shadow import compare, live_pages
from dsv4_npu_ops.engines.sglang.step_call import Buffers, StepCall
from dsv4_npu_ops.engines.sglang.tables import C128_TOKENS, SglangTables, tables_of_backend
from dsv4_npu_ops.engines.sglang.versions import mirrors_lengths, without_known_faults
from dsv4_npu_ops.layout import StepRows
from dsv4_npu_ops.layout.step_rows import COMMITTED, FINAL

_BACKEND = "sglang.srt.hardware_backend.npu.attention.ascend_dsv4_backend.DeepseekV4AscendAttnBackend"
_LAUNCHES = "_dsv4_npu_ops_launches"
FILLED = "_dsv4_npu_ops_filled"
"""On metadata: its positions of groups are those of the step, whatever the drafts turn out to be."""


def apply_graph_metadata(original: Callable[..., Any], self: Any, forward_batch: Any) -> None:
    """``_apply_dsv4_graph_metadata``: refreshes everything but what CANN's own metadata ops give."""
    setattr(self.forward_metadata, FILLED, False)  # in case that this one is left to SGLang
    refresh = _plan(self, forward_batch)
    if not hasattr(self, "_refresh_graph_kernel_metadata"):  # until 0.5.16 one function does it all
        original(self, forward_batch)
        refresh.call.run()
        setattr(refresh.metadata, FILLED, refresh.is_verify)
        return
    refresh.call.run()
    refresh.finish()


def shadow_apply_graph_metadata(original: Callable[..., Any], self: Any, forward_batch: Any) -> None:
    """SGLang refreshes; copies are refreshed beside it and compared."""
    refresh = _plan(self, forward_batch)
    original(self, forward_batch)
    beside = refresh.call.beside()
    beside.run()
    theirs, tables = without_known_faults(refresh.call.buffers.named, refresh.is_verify), refresh.call.tables.tables
    starts = refresh.live_lens_cpu if refresh.is_verify else refresh.final_lens_cpu - refresh.tokens_a_row
    live = live_pages(tables, theirs, starts, refresh.final_lens_cpu)
    compare("_apply_dsv4_graph_metadata", theirs, beside.buffers.named, beside.run, live)


def update_after_draft(original: Callable[..., Any], self: Any, spec_info: Any, cuda_graph_bs: int | None) -> None:
    """``update_verify_buffers_to_fill_after_draft``: positions of groups follow from lengths, which were known."""
    if not getattr(self.forward_metadata, FILLED, False):
        original(self, spec_info, cuda_graph_bs)


@dataclass(slots=True)
class _Refresh:
    """A refresh that is known to be possible, but for what the launch refuses; it has changed nothing yet."""

    attention: Any
    forward_batch: Any
    metadata: Any
    call: StepCall
    live_lens_cpu: Tensor
    final_lens_cpu: Tensor
    tokens_a_row: int
    is_verify: bool
    by_step_slots: bool
    columns: dict[str, int]

    def finish(self) -> None:
        """What the launch does not write: numbers on the host, what SGLang copies as it is, and CANN's metadata ops,
        which are SGLang's to call."""
        metadata, batch = self.metadata, self.forward_batch
        if self.is_verify:
            metadata.seq_lens_cpu_int = self.final_lens_cpu
        elif mirrors_lengths():
            metadata.seq_lens_cpu_int = self.final_lens_cpu.clamp(min=1)
        banks = getattr(metadata, "dsv4_cycle_state_block_table", None)
        if banks is not None:
            banks.copy_(self.call.req_pool_indices)
        if self.by_step_slots:
            mapping = self.attention.token_to_kv_pool.full_to_swa_index_mapping
            _map_slots(mapping, batch.out_cache_loc, metadata.swa_loc)
        if self.columns:
            self.attention._graph_table_high_water.update(self.columns)
        setattr(metadata, FILLED, self.is_verify)
        rows = self.call.req_pool_indices.shape[0]
        self.attention._refresh_graph_kernel_metadata(
            SimpleNamespace(fm=metadata, bs=rows, tokens_per_bs=self.tokens_a_row)
        )
        self.attention.forward_metadata = metadata


def _plan(self: Any, forward_batch: Any) -> _Refresh:
    mode, size = forward_batch.forward_mode, forward_batch.batch_size
    is_verify, is_decode = mode.is_target_verify(), mode.is_decode()
    if not (is_verify or is_decode or mode.is_draft_extend_v2()):
        raise Unexpected(f"a graph of mode {mode}")
    if forward_batch.seq_lens_cpu is None:
        raise Unexpected("no seq_lens_cpu")
    metadata, tables = self.forward_metadata, tables_of_backend(self)
    compresses = self._dsv4_has_c4 or self._dsv4_has_c128
    is_idle = (getattr(forward_batch, "actual_forward_mode", None) or mode).is_idle()
    if compresses and not is_idle and getattr(forward_batch, "out_cache_loc_dsv4", None) is None:
        raise Unexpected("no out_cache_loc_dsv4")
    # Until 0.5.17 a graph's rows are as wide as the drafts of all steps.
    width = getattr(self, "_dsv4_graph_tokens_per_req", None) or self.speculative_num_draft_tokens
    tokens_a_row = 1 if is_decode else int(width)
    live, final, longest = _host_lengths(self, forward_batch, size, tokens_a_row, is_verify, is_idle)
    if is_verify:
        rows = StepRows(tables.staging.to_device(live)[0], COMMITTED, None, tokens_a_row)
    else:
        on_device = forward_batch.seq_lens if forward_batch.seq_lens.device.type != "cpu" else final
        rows = StepRows(on_device[:size], FINAL, None, tokens_a_row)
    by_step_slots = is_decode and not compresses  # of a draft step: its tokens lie behind the lengths
    columns = _columns(self, longest, tables)
    buffers = _buffers(self, metadata, size, is_verify, is_decode, columns, tables.has_state_pages and compresses)
    block = tokens_a_row if "window_locs" in buffers.named else 1
    call = StepCall(tables, rows, forward_batch.req_pool_indices[:size], buffers, block)
    return _Refresh(self, forward_batch, metadata, call, live, final, tokens_a_row, is_verify, by_step_slots, columns)


def _host_lengths(
    self: Any, forward_batch: Any, size: int, tokens_a_row: int, is_verify: bool, is_idle: bool
) -> tuple[Tensor, Tensor, int]:
    """Committed and final lengths, int32 on the host, 0 in padding rows, and the longest. SGLang says either of the
    two, by algorithm."""
    given = forward_batch.seq_lens_cpu[:size].int()
    if not is_verify:
        return given, given, max(given.tolist(), default=0)
    if is_idle:
        zeros = torch.zeros_like(given)
        return zeros, zeros, 0
    explicit = getattr(getattr(forward_batch, "spec_info", None), "live_seq_lens_cpu", None)
    if explicit is None and not getattr(self, "_is_dspark_algorithm", False):
        live = given
    elif explicit is None:
        live = (given - tokens_a_row).clamp_(min=0)
    else:
        live = torch.zeros_like(given)
        explicit = torch.as_tensor(explicit).flatten()[:size]
        live[: explicit.numel()].copy_(explicit)
        if not torch.equal(given * (live > 0), (live + tokens_a_row) * (live > 0)):
            raise Unexpected("final lengths that are not the committed ones and a block")
    lengths = live.tolist()
    final = live + tokens_a_row
    if 0 in lengths:
        final *= live > 0
    return live, final, max(lengths, default=0) + tokens_a_row


def _columns(self: Any, longest: int, tables: SglangTables) -> dict[str, int]:
    """Columns of each page table that this replay needs or an earlier one has written: what it refreshes."""
    written = getattr(self, "_graph_table_high_water", None)
    if written is None:  # until 0.5.19 all columns are refreshed
        return {}
    needed = {"swa_page_table": -(-longest // int(self.page_size))}
    if self._dsv4_has_c4:
        needed["c4_page_table"] = needed["swa_page_table"]
    if self._dsv4_has_c128:
        needed["c128_page_table"] = -(-(longest // C128_TOKENS) // tables.page_sizes[128])
    return {key: max(1, columns, written.get(key, 0)) for key, columns in needed.items()}


def _buffers(
    self: Any,
    metadata: Any,
    size: int,
    is_verify: bool,
    is_decode: bool,
    columns: dict[str, int],
    has_state_pages: bool,
) -> Buffers:
    """What a graph reads and a launch fills; kept with the graph's metadata, for each extent of the page tables."""
    kept = metadata.__dict__.setdefault(_LAUNCHES, {})
    key = tuple(columns.values())
    if key in kept:
        return kept[key]
    buffers = {"kv_lens": metadata.actual_seq_lengths_kv}
    compresses = self._dsv4_has_c4 or self._dsv4_has_c128
    tables = ["swa_page_table"]
    if compresses or not is_decode:
        buffers["out_swa_loc"] = metadata.swa_loc
    if is_decode or (is_verify and compresses):
        buffers["start_pos"], buffers["seqused"] = metadata.start_pos, metadata.seqused
    if is_verify or is_decode:
        for ratio, has_ratio in ((4, self._dsv4_has_c4), (128, self._dsv4_has_c128)):
            if has_ratio:
                buffers[f"out_c{ratio}_loc"] = getattr(metadata, f"c{ratio}_loc")
                buffers[f"positions_c{ratio}"] = getattr(metadata, f"positions_cmp_padding_c{ratio}")
                tables.append(f"c{ratio}_page_table")
    if has_state_pages:  # of slots that a decode writes, and pages
        for ratio in (4, 128):
            tables.append(f"c{ratio}_state_page_table")
            if is_decode:
                buffers[f"out_c{ratio}_state_loc"] = getattr(metadata, f"c{ratio}_state_loc")
    for table in tables:  # of a buffer that graphs of all sizes share
        buffers[table] = self.graph_metadata[table][:size, : columns.get(table)]
    for ratio, locs in getattr(metadata, "dsv4_explicit_state_block_tables", {}).items():
        buffers[f"c{ratio}_state_locs"] = locs
    if is_verify and getattr(self, "_is_dspark_draft_worker", False):
        buffers["window_locs"] = metadata.ori_sparse_indices.squeeze(1)
    kept[key] = Buffers(buffers)
    return kept[key]


def _map_slots(mapping: Tensor, full: Tensor, swa: Tensor) -> None:
    """Window slots of given slots, 0 behind them."""
    count = full.shape[0]
    torch.index_select(mapping, 0, full, out=swa[:count])
    swa[count:].zero_()


HOOKS = (
    Hook(
        f"{_BACKEND}._apply_dsv4_graph_metadata", apply_graph_metadata, "0.5.15", "0.5.23", shadow_apply_graph_metadata
    ),
    Hook(f"{_BACKEND}.update_verify_buffers_to_fill_after_draft", update_after_draft, "0.5.15", "0.5.23"),
)

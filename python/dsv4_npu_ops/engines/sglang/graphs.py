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
from dsv4_npu_ops.engines.sglang.step_call import StepCall
from dsv4_npu_ops.engines.sglang.tables import C128_TOKENS, SglangTables, tables_of_backend
from dsv4_npu_ops.engines.sglang.versions import mirrors_lengths, without_known_faults
from dsv4_npu_ops.layout import Step, StepRows

_BACKEND = "sglang.srt.hardware_backend.npu.attention.ascend_dsv4_backend.DeepseekV4AscendAttnBackend"
_LIVE_LENS = "_dsv4_npu_ops_live_lens"
FILLED = "_dsv4_npu_ops_filled"
"""On metadata: its positions of groups are those of the step, whatever the drafts turn out to be."""


def apply_graph_metadata(original: Callable[..., Any], self: Any, forward_batch: Any) -> None:
    """``_apply_dsv4_graph_metadata``: refreshes everything but what CANN's own metadata ops give."""
    refresh = _plan(self, forward_batch)
    refresh.prepare()
    refresh.call.run()
    refresh.finish()


def shadow_apply_graph_metadata(original: Callable[..., Any], self: Any, forward_batch: Any) -> None:
    """SGLang refreshes; copies are refreshed beside it and compared."""
    refresh = _plan(self, forward_batch)
    original(self, forward_batch)
    beside = refresh.call.beside()
    beside.run()
    theirs, tables = without_known_faults(refresh.call.buffers(), refresh.is_verify), refresh.call.tables.tables
    starts = refresh.live_lens_cpu if refresh.is_verify else refresh.final_lens_cpu - refresh.tokens_a_row
    live = live_pages(tables, theirs, starts, refresh.final_lens_cpu)
    compare("_apply_dsv4_graph_metadata", theirs, beside.buffers(), beside.run, live)


def update_after_draft(original: Callable[..., Any], self: Any, spec_info: Any, cuda_graph_bs: int | None) -> None:
    """``update_verify_buffers_to_fill_after_draft``: positions of groups follow from lengths, which were known."""
    if not getattr(self.forward_metadata, FILLED, False):
        original(self, spec_info, cuda_graph_bs)


@dataclass(frozen=True)
class _Refresh:
    """A refresh that is known to be possible."""

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

    def prepare(self) -> None:
        """What the launch does not write: numbers on the host, and what SGLang copies as it is."""
        metadata, batch, rows = self.metadata, self.forward_batch, self.call.rows.seq_lens.shape[0]
        if self.is_verify:
            self.call.tables.staging.copy_into(self.call.rows.seq_lens, self.live_lens_cpu)
            metadata.seq_lens_cpu_int = torch.where(self.live_lens_cpu > 0, self.final_lens_cpu, self.live_lens_cpu)
        elif mirrors_lengths():
            metadata.seq_lens_cpu_int = self.final_lens_cpu.clamp(min=1)
        banks = getattr(metadata, "dsv4_cycle_state_block_table", None)
        if banks is not None:
            banks.copy_(batch.req_pool_indices[:rows])
        if self.by_step_slots:
            _map_slots(self.call.tables, batch.out_cache_loc, metadata.swa_loc)
        if self.columns:
            self.attention._graph_table_high_water.update(self.columns)
        setattr(metadata, FILLED, self.is_verify)

    def finish(self) -> None:
        """CANN's metadata ops, which are SGLang's to call."""
        context = SimpleNamespace(
            fm=self.metadata, bs=self.call.rows.seq_lens.shape[0], tokens_per_bs=self.tokens_a_row
        )
        self.attention._refresh_graph_kernel_metadata(context)
        self.attention.forward_metadata = self.metadata


def _plan(self: Any, forward_batch: Any) -> _Refresh:
    mode, size = forward_batch.forward_mode, forward_batch.batch_size
    is_verify, is_decode = mode.is_target_verify(), mode.is_decode()
    if not (is_verify or is_decode or mode.is_draft_extend_v2()):
        raise Unexpected(f"a graph of mode {mode}")
    if forward_batch.seq_lens_cpu is None:
        raise Unexpected("no seq_lens_cpu")
    metadata, tables = self.forward_metadata, tables_of_backend(self)
    tokens_a_row = 1 if is_decode else int(self._dsv4_graph_tokens_per_req)
    is_idle = (getattr(forward_batch, "actual_forward_mode", None) or mode).is_idle()
    live, final = _host_lengths(self, forward_batch, size, tokens_a_row, is_verify, is_idle)
    compresses = self._dsv4_has_c4 or self._dsv4_has_c128
    if compresses and not is_idle and getattr(forward_batch, "out_cache_loc_dsv4", None) is None:
        raise Unexpected("no out_cache_loc_dsv4")
    by_step_slots = is_decode and not compresses  # of a draft step: its tokens lie behind the lengths
    if is_verify:
        rows = StepRows.verify(_device_lengths(metadata, size, tables), tokens_a_row)
    else:
        on_device = forward_batch.seq_lens if forward_batch.seq_lens.device.type != "cpu" else final
        rows = StepRows.final(on_device[:size], tokens_a_row)
    out = Step(kv_lens=metadata.actual_seq_lengths_kv)
    columns = _columns(self, int(final.max()) if size else 0, tables)
    out.swa_page_table = _page_table(self, "swa_page_table", size, columns)
    if not by_step_slots:
        out.out_swa_loc = metadata.swa_loc
    if is_verify or is_decode:
        if compresses or is_decode:
            out.start_pos, out.seqused = metadata.start_pos, metadata.seqused
        if self._dsv4_has_c4:
            out.out_c4_loc, out.positions_c4 = metadata.c4_loc, metadata.positions_cmp_padding_c4
            out.c4_page_table = _page_table(self, "c4_page_table", size, columns)
        if self._dsv4_has_c128:
            out.out_c128_loc, out.positions_c128 = metadata.c128_loc, metadata.positions_cmp_padding_c128
            out.c128_page_table = _page_table(self, "c128_page_table", size, columns)
    for ratio, table in metadata.dsv4_explicit_state_block_tables.items():
        setattr(out, f"c{ratio}_state_locs", table)
    block = 1
    if is_verify and self._is_dspark_draft_worker:
        out.window_locs, block = metadata.ori_sparse_indices, tokens_a_row
    call = StepCall(tables, rows, forward_batch.req_pool_indices[:size], out, block)
    return _Refresh(self, forward_batch, metadata, call, live, final, tokens_a_row, is_verify, by_step_slots, columns)


def _host_lengths(
    self: Any, forward_batch: Any, size: int, tokens_a_row: int, is_verify: bool, is_idle: bool
) -> tuple[Tensor, Tensor]:
    """Committed and final lengths, int32 on the host. SGLang says either of the two, by algorithm."""
    given = forward_batch.seq_lens_cpu[:size].int()
    if not is_verify:
        return given, given
    if is_idle:
        zeros = torch.zeros_like(given)
        return zeros, zeros
    explicit = getattr(getattr(forward_batch, "spec_info", None), "live_seq_lens_cpu", None)
    if explicit is None and not self._is_dspark_algorithm:
        return given, given + tokens_a_row
    if explicit is None:
        return (given - tokens_a_row).clamp(min=0), given
    live = torch.zeros_like(given)
    explicit = torch.as_tensor(explicit).flatten()[:size]
    live[: explicit.numel()].copy_(explicit)
    if not torch.equal(given * (live > 0), (live + tokens_a_row) * (live > 0)):
        raise Unexpected("final lengths that are not the committed ones and a block")
    return live, given


def _device_lengths(metadata: Any, size: int, tables: SglangTables) -> Tensor:
    """A buffer of the graph's own for the committed lengths, which come from the host."""
    lengths = getattr(metadata, _LIVE_LENS, None)
    if lengths is None:
        lengths = torch.zeros(size, dtype=torch.int32, device=tables.staging.device)
        setattr(metadata, _LIVE_LENS, lengths)
    return lengths


def _columns(self: Any, longest: int, tables: SglangTables) -> dict[str, int]:
    """Columns of each page table that this replay needs or an earlier one has written: what it refreshes."""
    written = getattr(self, "_graph_table_high_water", None)
    if written is None:  # until 0.5.19 all columns are refreshed
        return {}
    needed = {"swa_page_table": -(-longest // int(self.page_size))}
    if self._dsv4_has_c4:
        needed["c4_page_table"] = needed["swa_page_table"]
    if self._dsv4_has_c128:
        needed["c128_page_table"] = -(-(longest // C128_TOKENS) // tables.c128_page_size)
    return {key: max(1, columns, written.get(key, 0)) for key, columns in needed.items()}


def _page_table(self: Any, key: str, size: int, columns: dict[str, int]) -> Tensor:
    """The refreshed part of a buffer that graphs of all sizes share."""
    return self.graph_metadata[key][:size, : columns.get(key)]


def _map_slots(tables: SglangTables, full: Tensor, swa: Tensor) -> None:
    """Window slots of given slots, 0 behind them."""
    count = full.shape[0]
    mapping = tables.sources[1]
    torch.index_select(mapping, 0, full, out=swa[:count])
    swa[count:].zero_()


HOOKS = (
    Hook(
        f"{_BACKEND}._apply_dsv4_graph_metadata", apply_graph_metadata, "0.5.18", "0.5.23", shadow_apply_graph_metadata
    ),
    Hook(f"{_BACKEND}.update_verify_buffers_to_fill_after_draft", update_after_draft, "0.5.18", "0.5.23"),
)

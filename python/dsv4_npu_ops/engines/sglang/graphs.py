"""The buffers that a captured graph of SGLang reads, refreshed before each replay by one launch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected
from dsv4_npu_ops.engines.sglang.shadow import compare, live_pages
from dsv4_npu_ops.engines.sglang.step_call import Buffers, first_rows, launch
from dsv4_npu_ops.engines.sglang.tables import C128_TOKENS, SglangTables, tables_of_backend
from dsv4_npu_ops.engines.sglang.versions import mirrors_lengths, without_known_faults
from dsv4_npu_ops.layout import StepRows
from dsv4_npu_ops.layout.step_rows import COMMITTED, FINAL
from dsv4_npu_ops.ops.step_sizes import step_sizes

_BACKEND = "sglang.srt.hardware_backend.npu.attention.ascend_dsv4_backend.DeepseekV4AscendAttnBackend"
_GRAPH = "_dsv4_npu_ops_graph"
_C128_PAGES = "c128_page_table"
FILLED = "_dsv4_npu_ops_filled"
"""On metadata: its positions of groups are those of the step, whatever the drafts turn out to be."""


def apply_graph_metadata(original: Callable[..., Any], self: Any, forward_batch: Any) -> None:
    """``_apply_dsv4_graph_metadata``: refreshes everything but what CANN's own metadata ops give."""
    setattr(self.forward_metadata, FILLED, False)  # in case that this one is left to SGLang
    refresh = _plan(self, forward_batch)
    if not hasattr(self, "_refresh_graph_kernel_metadata"):  # until 0.5.16 one function does it all
        original(self, forward_batch)
        refresh.launch()
        setattr(refresh.graph.metadata, FILLED, refresh.graph.is_verify)
        return
    refresh.launch()
    refresh.finish(forward_batch)


def shadow_apply_graph_metadata(original: Callable[..., Any], self: Any, forward_batch: Any) -> None:
    """SGLang refreshes; copies are refreshed beside it and compared."""
    refresh = _plan(self, forward_batch)
    original(self, forward_batch)
    beside = replace(refresh, buffers=refresh.buffers.beside())
    beside.launch()
    graph = refresh.graph
    theirs, tables = without_known_faults(refresh.buffers.named, graph.is_verify), graph.tables.tables
    starts = refresh.live_lens_cpu if graph.is_verify else refresh.final_lens_cpu - graph.tokens_a_row
    live = live_pages(tables, theirs, starts, refresh.final_lens_cpu)
    compare("_apply_dsv4_graph_metadata", theirs, beside.buffers.named, beside.launch, live)


def update_after_draft(original: Callable[..., Any], self: Any, spec_info: Any, cuda_graph_bs: int | None) -> None:
    """``update_verify_buffers_to_fill_after_draft``: positions of groups follow from lengths, which were known."""
    if not getattr(self.forward_metadata, FILLED, False):
        original(self, spec_info, cuda_graph_bs)


class _Graph:
    """What a captured graph's replays have in common; kept with its metadata."""

    def __init__(self, attention: Any, metadata: Any, tables: SglangTables, mode: Any, size: int) -> None:
        """
        Raises:
            Unexpected: a graph of another kind than those known.
        """
        self.is_verify, self.is_decode = mode.is_target_verify(), mode.is_decode()
        if not (self.is_verify or self.is_decode or mode.is_draft_extend_v2()):
            raise Unexpected(f"a graph of mode {mode}")
        self.attention, self.metadata, self.tables, self.mode, self.size = attention, metadata, tables, mode, size
        self.ratios = [r for r in (4, 128) if getattr(attention, f"_dsv4_has_c{r}")]
        # Until 0.5.17 a graph's rows are as wide as the drafts of all steps.
        width = getattr(attention, "_dsv4_graph_tokens_per_req", None) or attention.speculative_num_draft_tokens
        self.tokens_a_row = 1 if self.is_decode else int(width)
        self.by_step_slots = self.is_decode and not self.ratios  # of a draft step: its tokens lie behind the lengths
        self.has_committed_lens = not getattr(attention, "_is_dspark_algorithm", False)
        self._page_size = int(attention.page_size)
        self._c128_page_size = tables.page_sizes.get(128, 1)
        self._page_tables = ["swa_page_table", *(f"c{ratio}_page_table" for ratio in self.ratios)]
        self._buffers: Buffers | None = None
        self._columns: tuple[int | None, ...] = ()
        self._covered = 0  # the longest request that these columns are enough for
        self._noted: dict[str, int] | None = None  # SGLang's columns in use, once they were told of these

    def serves(self, attention: Any, tables: SglangTables, mode: Any, size: int) -> bool:
        """Whether it was made of these."""
        same = self.attention is attention and self.tables is tables and self.mode is mode
        return same and self.size == size

    def buffers(self, longest: int) -> Buffers:
        """What the graph reads and a launch fills: of each page table the columns that this replay needs, or an earlier
        one has written. Kept for the next replay, since these grow and never shrink."""
        written = getattr(self.attention, "_graph_table_high_water", None)
        if self._buffers is not None and longest <= self._covered and written == self._noted:
            return self._buffers
        columns, self._noted = self._columns_for(longest, written), None
        if self._buffers is None or columns != self._columns:
            named = self._named(dict(zip(self._page_tables, columns, strict=True)))
            self._buffers = Buffers(self.tables, named, self.tokens_a_row if "window_locs" in named else 1)
            self._columns = columns
        return self._buffers

    def _columns_for(self, longest: int, written: dict[str, int] | None) -> tuple[int | None, ...]:
        if written is None:  # until 0.5.19 all columns are refreshed
            self._covered = sys.maxsize
            return (None,) * len(self._page_tables)
        pages = -(-longest // self._page_size), -(-(longest // C128_TOKENS) // self._c128_page_size)
        columns = [max(1, written.get(name, 0), pages[name == _C128_PAGES]) for name in self._page_tables]
        self._covered = min(
            (count * self._c128_page_size + 1) * C128_TOKENS - 1 if name == _C128_PAGES else count * self._page_size
            for name, count in zip(self._page_tables, columns, strict=True)
        )
        return tuple(columns)

    def note_written(self, buffers: dict[str, Tensor]) -> None:
        """Tells SGLang how many columns of its page tables hold something, once a launch has filled these buffers."""
        written = getattr(self.attention, "_graph_table_high_water", None)
        if written is not None and written != self._noted:
            written.update({name: buffers[name].shape[1] for name in self._page_tables if name in buffers})
            self._noted = dict(written)

    def _named(self, columns: dict[str, int | None]) -> dict[str, Tensor]:
        metadata = self.metadata
        buffers = {"kv_lens": metadata.actual_seq_lengths_kv}
        tables = ["swa_page_table"]
        if self.ratios or not self.is_decode:
            buffers["out_swa_loc"] = metadata.swa_loc
        if self.is_decode or (self.is_verify and self.ratios):
            buffers["start_pos"], buffers["seqused"] = metadata.start_pos, metadata.seqused
        if self.is_verify or self.is_decode:
            for ratio in self.ratios:
                buffers[f"out_c{ratio}_loc"] = getattr(metadata, f"c{ratio}_loc")
                buffers[f"positions_c{ratio}"] = getattr(metadata, f"positions_cmp_padding_c{ratio}")
                tables.append(f"c{ratio}_page_table")
        if self.tables.has_state_pages and self.ratios:  # of slots that a decode writes, and pages
            for ratio in (4, 128):
                tables.append(f"c{ratio}_state_page_table")
                if self.is_decode:
                    buffers[f"out_c{ratio}_state_loc"] = getattr(metadata, f"c{ratio}_state_loc")
        for table in tables:  # of a buffer that graphs of all sizes share
            buffers[table] = self.attention.graph_metadata[table][: self.size, : columns.get(table)]
        for ratio, locs in getattr(metadata, "dsv4_explicit_state_block_tables", {}).items():
            buffers[f"c{ratio}_state_locs"] = locs
        if self.is_verify and getattr(self.attention, "_is_dspark_draft_worker", False):
            buffers["window_locs"] = metadata.ori_sparse_indices.squeeze(1)
        return buffers


def _graph_of(self: Any, mode: Any, size: int) -> _Graph:
    metadata, tables = self.forward_metadata, tables_of_backend(self)
    known: _Graph | None = metadata.__dict__.get(_GRAPH)
    if known is None or not known.serves(self, tables, mode, size):
        known = metadata.__dict__[_GRAPH] = _Graph(self, metadata, tables, mode, size)
    return known


@dataclass(slots=True)
class _Refresh:
    """A refresh that is known to be possible, but for what the launch refuses; it has changed nothing yet."""

    graph: _Graph
    buffers: Buffers
    rows: StepRows
    req_pool_indices: Tensor
    live_lens_cpu: Tensor
    final_lens_cpu: Tensor

    def launch(self) -> None:
        """Fills the buffers.

        Raises:
            Unexpected: a tensor that the op does not take; nothing is filled.
        """
        self.buffers.fill(self.rows, self.req_pool_indices)

    def finish(self, forward_batch: Any) -> None:
        """What the launch does not write: numbers on the host, what SGLang copies as it is, and CANN's metadata ops,
        which are SGLang's to call."""
        graph = self.graph
        metadata, attention = graph.metadata, graph.attention
        if graph.is_verify:
            metadata.seq_lens_cpu_int = self.final_lens_cpu
        elif mirrors_lengths():
            metadata.seq_lens_cpu_int = self.final_lens_cpu.clamp(min=1)
        banks = getattr(metadata, "dsv4_cycle_state_block_table", None)
        if banks is not None:
            banks.copy_(self.req_pool_indices)
        if graph.by_step_slots:
            mapping = attention.token_to_kv_pool.full_to_swa_index_mapping
            _map_slots(mapping, forward_batch.out_cache_loc, metadata.swa_loc)
        graph.note_written(self.buffers.named)
        setattr(metadata, FILLED, graph.is_verify)
        attention._refresh_graph_kernel_metadata(
            SimpleNamespace(fm=metadata, bs=graph.size, tokens_per_bs=graph.tokens_a_row)
        )
        attention.forward_metadata = metadata


def _plan(self: Any, forward_batch: Any) -> _Refresh:
    mode, size = forward_batch.forward_mode, forward_batch.batch_size
    if forward_batch.seq_lens_cpu is None:
        raise Unexpected("no seq_lens_cpu")
    graph = _graph_of(self, mode, size)
    tables = graph.tables
    is_idle = (getattr(forward_batch, "actual_forward_mode", None) or mode).is_idle()
    if graph.ratios and not is_idle and getattr(forward_batch, "out_cache_loc_dsv4", None) is None:
        raise Unexpected("no out_cache_loc_dsv4")
    live, final, longest = _host_lengths(graph, forward_batch, is_idle)
    if graph.is_verify:
        rows = StepRows(tables.staging.to_device(live)[0], COMMITTED, None, graph.tokens_a_row)
    else:
        on_device = forward_batch.seq_lens if forward_batch.seq_lens.device.type != "cpu" else final
        rows = StepRows(first_rows(on_device, size), FINAL, None, graph.tokens_a_row)
    requests = first_rows(forward_batch.req_pool_indices, size)
    return _Refresh(graph, graph.buffers(longest), rows, requests, live, final)


def _host_lengths(graph: _Graph, forward_batch: Any, is_idle: bool) -> tuple[Tensor, Tensor, int]:
    """Committed lengths, final ones (int32), both 0 in padding rows and on the host, and the longest. SGLang says
    either of the two, by algorithm."""
    given, width = first_rows(forward_batch.seq_lens_cpu, graph.size), graph.tokens_a_row
    if not graph.is_verify:
        final = given.int()
        return final, final, max(given.tolist(), default=0)
    if is_idle:
        zeros = torch.zeros_like(given, dtype=torch.int32)
        return zeros, zeros, 0
    explicit = getattr(forward_batch.spec_info, "live_seq_lens_cpu", None)
    if explicit is None and graph.has_committed_lens:
        live = given
    elif explicit is None:
        live = (given - width).clamp_(min=0)
    else:
        live = torch.zeros_like(given)
        explicit = torch.as_tensor(explicit).flatten()[: graph.size]
        live[: explicit.numel()].copy_(explicit)
        if not torch.equal(given * (live > 0), (live + width) * (live > 0)):
            raise Unexpected("final lengths that are not the committed ones and a block")
    *_, longest, _, final = launch(step_sizes, StepRows(live, COMMITTED, None, width))
    return live, final, max(longest, width)


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

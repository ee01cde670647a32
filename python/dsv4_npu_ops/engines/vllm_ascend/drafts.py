"""All single-token passes of a draft: slots, positions, lengths and RoPE rows of every step by one launch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import dsv4_npu_ops.ops  # noqa: F401  (loading it registers torch.ops.dsv4_npu_ops)
from dsv4_npu_ops.engines.hooks import Hook, Unexpected
from dsv4_npu_ops.engines.shadow import compare
from dsv4_npu_ops.engines.vllm_ascend import cann
from dsv4_npu_ops.engines.vllm_ascend.instances import instance
from dsv4_npu_ops.layout.compressor_metadata import FLAT, PAIRS, CompressorMetadata

_metadata = torch.ops.dsv4_npu_ops.compressor_metadata.default
_PROPOSER = "vllm_ascend.spec_decode.llm_base_proposer.AscendSpecDecodeBaseProposer"
_DSA, _ROPE = "vllm_ascend.attention.dsa_v1", "vllm_ascend.ops.rope_dsv4"
_DRAFT, _KEPT = "_dsv4_npu_ops_draft", "_dsv4_npu_ops_kept_draft"
_GROUP = "default"


def attn_update_stack_num_spec_norm(
    original: Callable[..., Any],
    self: Any,
    draft_index: int,
    old_attn_metadata: Any,
    old_common_metadata: Any,
    batch_size: int,
    input_batch_size: int,
    used_update_positions: Tensor,
    aclgraph_runtime_mode: Any,
    ori_seq_len: Any = None,
    ori_seq_len_cpu: Any = None,
    slot_indices: Any = None,
    mtp_slot_mapping: Any = None,
    attn_group: Any = None,
) -> tuple[Any, Any]:
    """``attn_update_stack_num_spec_norm``: the first call of a draft makes all steps, the others hand them out.

    The batch's metadata come back as they are: only the engine's own next call would read what it changes there.
    """
    if draft_index == 1:
        self.__dict__.pop(_DRAFT, None)
        draft = _draft_of(self, old_common_metadata, batch_size, input_batch_size, aclgraph_runtime_mode, attn_group)
        draft.make(used_update_positions, old_common_metadata)
        setattr(self, _DRAFT, draft)
    stack = self.__dict__.get(_DRAFT)
    if stack is None:
        return original(  # type: ignore[no-any-return]
            self,
            draft_index,
            old_attn_metadata,
            old_common_metadata,
            batch_size,
            input_batch_size,
            used_update_positions,
            aclgraph_runtime_mode,
            ori_seq_len,
            ori_seq_len_cpu,
            slot_indices,
            mtp_slot_mapping,
            attn_group,
        )
    return old_common_metadata, stack.metadata[draft_index - 1]


def shadow_attn_update_stack_num_spec_norm(
    original: Callable[..., Any],
    self: Any,
    draft_index: int,
    old_attn_metadata: Any,
    old_common_metadata: Any,
    batch_size: int,
    input_batch_size: int,
    used_update_positions: Tensor,
    aclgraph_runtime_mode: Any,
    *args: Any,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """The engine's step is used; ours is made beside it and compared."""
    positions = used_update_positions.clone()
    result: tuple[Any, Any] = original(
        self,
        draft_index,
        old_attn_metadata,
        old_common_metadata,
        batch_size,
        input_batch_size,
        used_update_positions,
        aclgraph_runtime_mode,
        *args,
        **kwargs,
    )
    draft = _Draft(self, old_common_metadata, batch_size, input_batch_size, False, kwargs["attn_group"])
    theirs = result[1].decode

    def again() -> None:
        draft.launch(positions, old_common_metadata.block_table_tensor)

    again()
    compare(
        "vLLM-Ascend",
        "attn_update_stack_num_spec_norm",
        {"slot_mapping": theirs.slot_mapping, "positions": result[0].positions[:batch_size].long()},
        {"slot_mapping": draft.slots[0][:batch_size], "positions": draft.positions[:batch_size]},
        again,
    )
    return result


def _draft_of(self: Any, common: Any, rows: int, entries: int, mode: Any, attn_group: Any) -> _Draft:
    """The draft of the round before where it was of the same size: then all that is new are its launches."""
    in_graph = getattr(mode, "name", "") == "FULL"
    size = rows, entries, in_graph, common.num_reqs, tuple(common.block_table_tensor.shape), common.seq_lens.shape[0]
    known = self.__dict__.get(_KEPT)
    if known is None or known[0] != size or known[1].attn_group is not attn_group:
        known = size, _Draft(self, common, rows, entries, in_graph, attn_group)
        setattr(self, _KEPT, known)
    return known[1]  # type: ignore[no-any-return]


class _Draft:
    """The steps behind the first pass of a draft: buffers, and metadata over them.

    Attributes:
        metadata: of each step.
        slots: of each step, flat or as pairs; positions: int64 of the entries of all steps.
    """

    def __init__(self, drafter: Any, common: Any, rows: int, entries: int, in_graph: bool, attn_group: Any) -> None:
        """
        Args:
            rows: requests; entries: of a step, dummies behind the requests included.
            in_graph: whether a captured graph reads the engine's buffers.

        Raises:
            Unexpected: something is not where this plug-in knows it.
        """
        dsa, self._state = sys.modules[_DSA], sys.modules[_ROPE]._ROPE_STATE
        builder = attn_group.get_metadata_builder()
        tables = {
            key: pair
            for key, pair in self._state.full_rope_cache.items()
            if _GROUP in self._state.registry_summary[key]
        }
        _check(drafter, builder, dsa, common, tables)
        self.attn_group, self._drafter, self._builder, self._dsa = attn_group, drafter, builder, dsa
        self._rows, self._entries, self._in_graph = rows, entries, in_graph
        self._longest, self._block_size = drafter.max_model_len, drafter.block_size
        self._requests = entries if in_graph else common.num_reqs
        self._form = PAIRS if builder.spec_slot_mapping[0].dim() == 2 else FLAT
        self.metadata: list[Any] = []
        self._make_buffers(tables, common.block_table_tensor.device, common.seq_lens)
        self._make_metadata()

    def _make_buffers(self, tables: dict[str, tuple[Tensor, Tensor]], device: torch.device, seq_lens: Tensor) -> None:
        steps, entries, rows = self._drafter.num_speculative_tokens - 1, self._entries, self._rows
        total = self._total = steps * entries
        # Made on the host and copied: a fill on the device would be a launch of its own.
        self._offsets = torch.arange(total + 1, dtype=torch.int32).to(device)
        self._table_rows = (torch.arange(entries, dtype=torch.int32) % rows).repeat(steps).to(device)
        # Entries behind the requests are beyond the longest sequence.
        self._start_pos = torch.full((steps, entries), self._longest, dtype=torch.int32).to(device)
        self._live_start_pos = self._start_pos[:, :rows]
        self._ahead = torch.arange(1, steps + 1, dtype=torch.int32)[:, None].to(device)
        columns = entries if self._in_graph else seq_lens.shape[0]
        self._lengths = torch.zeros((steps, columns), dtype=seq_lens.dtype).to(device)
        self._live_lengths = self._lengths[:, :rows] if self._in_graph else self._lengths
        (first, (cos, sin)), *others = tables.items()
        width = cos.shape[-1]
        self._out = CompressorMetadata.empty(
            total, width, slot_mapping_format=self._form, rope_dtype=cos.dtype, device=device
        )
        assert self._out.slot_mapping is not None and self._out.positions is not None
        assert self._out.cos is not None and self._out.sin is not None
        self.slots, self.positions = self._out.slot_mapping.split(entries), self._out.positions
        # Beyond the longest sequence there are no RoPE rows here: such a draft is a dummy.
        tables_of_first = cos.view(-1, width)[: self._longest], sin.view(-1, width)[: self._longest]
        out = self._out
        assert out.cos is not None and out.sin is not None
        self._before_blocks = (*tables_of_first, self._offsets, self._start_pos.view(-1), self._table_rows)
        sizes = self._block_size, self._form, 1, total, total
        self._behind_blocks = (*sizes, out.cos, out.sin, out.slot_mapping, out.positions)
        self._rope = {first: (out.cos, out.sin)}
        self._gathers = []
        for key, (cos, sin) in others:
            rows_of = cos.new_empty(total, 1, 1, width), cos.new_empty(total, 1, 1, width)
            self._rope[key] = rows_of
            flat = [tensor.view(-1, width) for tensor in (cos, sin, *rows_of)]
            self._gathers.append(
                partial(
                    torch.ops.dsv4_npu_ops.rope_gather.out,
                    flat[0],
                    flat[1],
                    self.positions,
                    inverse=False,
                    cos_out=flat[2],
                    sin_out=flat[3],
                )
            )

    def _make_metadata(self) -> None:
        builder, drafter, dsa = self._builder, self._drafter, self._dsa
        rows, entries = self._rows, self._entries
        states = dsa.AscendAttentionState
        fields = {
            "num_input_tokens": entries,
            "num_actual_tokens": rows,
            "query_lens": None,
            "slot_mapping": None,
            "head_dim": builder.model_config.get_head_size(),
            "num_decodes": self._requests,
            "num_decode_tokens": rows,
            "num_prefills": 0,
            "attn_mask": None,
            "attn_state": states.SpecDecoding if drafter.method == "mtp" else states.ChunkedPrefill,
            "prefill": None,
            "query_start_loc": None,
            "block_tables": None,
            "seq_lens": None,
            "hadamard": None,
        }
        unused = ("input_positions", "seq_lens_list", "max_seq_lens", "max_seqlen_kv", "max_seqlen_q")
        decode_fields = dict.fromkeys((*unused, "query_start_loc_cpu", "start_pos", "qli_metadata"))
        tp_size = dsa.get_tensor_model_parallel_world_size()
        kv_offsets = {
            "cu_seqlens_ori_kv": builder.cu_seqlens_ori_kv,
            "cu_seqlens_cmp_kv": builder.cu_seqlens_cmp_kv,
            "cmp_mask_mode": 3,
        }
        offsets = drafter.arange[: (entries if self._in_graph else rows) + 1]
        self._buffers: list[Tensor] = []
        self._values: list[Tensor] = []
        self._calls: list[dict[str, Any]] = []
        self._fields: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for d, slots in enumerate(self.slots):
            span = slice(d * entries, (d + 1) * entries)
            rope = {key: (cos[span], sin[span]) for key, (cos, sin) in self._rope.items()}
            seq_lens, starts = self._lengths[d], offsets
            if self._in_graph:
                slots, seq_lens, starts, rope = self._graph_buffers(d, slots, offsets, rope)
            proxies = [
                sys.modules[_ROPE].RopeDataProxy({key: {_GROUP: pair} for key, pair in rope.items()}, is_cos)
                for is_cos in (True, False)
            ]
            queries = cann.Queries(starts[: self._requests + 1], seq_lens[: self._requests], 1, 0)
            self._calls.append(cann.attention_arguments(builder, dsa.DeviceOperator, tp_size, queries, 1, kv_offsets))
            own = {
                "block_size": self._block_size,
                "slot_mapping": slots[:rows],
                "seq_lens": queries.seq_lens,
                "query_start_loc": queries.offsets,
                "cos": proxies[0][:rows],
                "sin": proxies[1][:rows],
            }
            cos_sin = {"cos": proxies[0], "sin": proxies[1]}
            self._fields.append(({**fields, **cos_sin}, {**decode_fields, **own}))

    def _graph_buffers(self, d: int, slots: Tensor, offsets: Tensor, rope: dict[str, Any]) -> tuple[Any, ...]:
        """Where a captured graph reads a step: what is made elsewhere is copied there."""
        drafter, count = self._drafter, self._entries

        def copied(buffer: Tensor, values: Tensor) -> Tensor:
            self._buffers.append(buffer[: values.shape[0]])
            self._values.append(values)
            return self._buffers[-1]

        seq_lens = drafter.seq_lens_group[d + 1]
        copied(seq_lens[count:], seq_lens.new_zeros(seq_lens.shape[0] - count))
        spec = {key: self._state.spec_runtime_buffer[key][_GROUP] for key in rope}
        return (
            copied(self._builder.spec_slot_mapping[d], slots),
            copied(seq_lens, self._lengths[d]),
            copied(drafter.query_start_loc_group[d + 1], offsets),
            {key: tuple(copied(spec[key][i][d], pair[i]) for i in range(2)) for key, pair in rope.items()},
        )

    def make(self, positions: Tensor, common: Any) -> None:
        """All steps of requests whose last token that is kept stands at ``positions``."""
        self.launch(positions, common.block_table_tensor)
        torch.add(common.seq_lens[: self._live_lengths.shape[1]], self._ahead, out=self._live_lengths)
        host = self._host_lengths(common)
        if self._buffers:
            torch._foreach_copy_(self._buffers, self._values)
        blocks = common.block_table_tensor
        if self._in_graph:
            blocks = self._drafter._adjust_tensor(blocks, self._entries)
        blocks = blocks[: self._requests]
        attention = self._attention(host)
        # Objects are new in each draft: a connector may still look at the last one's.
        self.metadata = []
        for (fields, decode_fields), of_step in zip(self._fields, attention, strict=True):
            own = {**decode_fields, "block_table": blocks, "sas_metadata": of_step}
            decode = instance(self._dsa.AscendDSADecodeMetadata, own)
            self.metadata.append(instance(self._builder.metadata_cls, {**fields, "decode": decode}))

    def _attention(self, longest: list[int]) -> list[Tensor]:
        """What CANN gives for each step, in a graph where the graph reads it."""
        operator = self._dsa.DeviceOperator.get_dsa_sparse_attn_metadata_op()
        made = []
        for arguments, of_step in zip(self._calls, longest, strict=True):
            arguments["max_seqlen_kv"] = of_step
            made.append(operator(**arguments))
        if not self._in_graph:
            return made
        buffers: list[Tensor] = self._builder.spec_sas_metadata[: len(made)]
        cann.publish(buffers, made)
        return buffers

    def launch(self, positions: Tensor, blocks: Tensor) -> None:
        """Step d is d tokens behind the positions."""
        torch.add(positions, self._ahead, out=self._live_start_pos)
        _metadata(*self._before_blocks, blocks, *self._behind_blocks)
        for gather in self._gathers:
            gather()

    def _host_lengths(self, common: Any) -> list[int]:
        """The longest request of each step; lengths beyond the longest sequence count from 1 again."""
        known = common._seq_lens_cpu if common._seq_lens_cpu is not None else common.seq_lens_cpu
        if known is None:
            known = common.seq_lens.cpu()
        host = known[: self._rows].tolist()
        longest, most, steps = max(host), self._longest, range(1, len(self._calls) + 1)
        if longest + len(self._calls) <= most:
            return [longest + d for d in steps]
        live = self._live_lengths
        torch.where(live > most, live - most, live, out=live)
        return [max(x + d if x + d <= most else x + d - most for x in host) for d in steps]


def _check(drafter: Any, builder: Any, dsa: Any, common: Any, tables: dict[str, tuple[Tensor, Tensor]]) -> None:
    if type(builder) is not dsa.AscendDSAMetadataBuilder or len(drafter.draft_attn_groups) != 1:
        raise Unexpected("drafts of other layers than DeepSeek-V4's MTP layer")
    if builder.model_config.hf_config.model_type != "deepseek_v4" or builder.compressor_ratio > 1:
        raise Unexpected("drafts of another model, or of a compressed layer")
    if drafter.uses_mrope or drafter.has_gdn or getattr(drafter.runner, "pcp_manager", None) is not None:
        raise Unexpected("drafts with mrope, gdn or context parallelism")
    if builder.block_size != drafter.block_size:
        raise Unexpected(f"blocks of {builder.block_size} slots for metadata and of {drafter.block_size} for slots")
    room = min([common.block_table_tensor.shape[1] * drafter.block_size, *(cos.shape[0] for cos, _ in tables.values())])
    if not tables or room < drafter.max_model_len:
        raise Unexpected(f"tables for {room} tokens, and sequences of {drafter.max_model_len}")


HOOKS = (
    Hook(
        f"{_PROPOSER}.attn_update_stack_num_spec_norm",
        attn_update_stack_num_spec_norm,
        "0.23.0",
        "0.23.0",
        shadow_attn_update_stack_num_spec_norm,
    ),
)

"""All single-token passes of a draft: slots, positions, lengths and RoPE rows of every step by one launch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected
from dsv4_npu_ops.engines.shadow import compare
from dsv4_npu_ops.engines.vllm_ascend import cann
from dsv4_npu_ops.engines.vllm_ascend.instances import instance
from dsv4_npu_ops.ops.draft_steps import DraftStepsApart

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
        draft.launch(positions, old_common_metadata)

    def named(slots: Tensor, seq_lens: Tensor, rope: dict[str, Any]) -> dict[str, Tensor]:
        rows = {"slot_mapping": slots[:batch_size], "seq_lens": seq_lens[:batch_size]}
        for key, (cos, sin) in rope.items():
            rows |= {f"cos of {key}": cos[:batch_size], f"sin of {key}": sin[:batch_size]}
        return rows

    again()
    compare(
        "vLLM-Ascend",
        "attn_update_stack_num_spec_norm",
        named(
            theirs.slot_mapping,
            theirs.seq_lens,
            {key: draft_rope[_GROUP] for key, draft_rope in theirs.cos._data.items() if _GROUP in draft_rope},
        ),
        named(draft.slots[0], draft.seq_lens[0], draft.rope[0]),
        again,
    )
    return result


def _draft_of(self: Any, common: Any, rows: int, entries: int, mode: Any, attn_group: Any) -> _Draft:
    """The draft of the round before where it was of the same size and builder: then only its launches are new."""
    in_graph = getattr(mode, "name", "") == "FULL"
    size = rows, entries, in_graph, common.num_reqs, common.block_table_tensor.shape
    known = self.__dict__.get(_KEPT)
    if known is None or known[0] != size or known[1].builder is not attn_group.get_metadata_builder():
        known = size, _Draft(self, common, rows, entries, in_graph, attn_group)
        setattr(self, _KEPT, known)
    return known[1]  # type: ignore[no-any-return]


class _Draft:
    """The steps behind the first pass of a draft: buffers, and metadata over them.

    Attributes:
        builder: whose buffers a captured graph reads.
        metadata: of each step.
        slots: of each step, flat or as pairs; seq_lens: of each step; rope: rows of each step by table.
    """

    def __init__(self, drafter: Any, common: Any, rows: int, entries: int, in_graph: bool, attn_group: Any) -> None:
        """
        Args:
            rows: requests; entries: of a step, dummies behind the requests included.
            in_graph: whether a captured graph reads the engine's buffers.

        Raises:
            Unexpected: something is not where this plug-in knows it.
        """
        dsa, state = sys.modules[_DSA], sys.modules[_ROPE]._ROPE_STATE
        builder = attn_group.get_metadata_builder()
        tables = {key: pair for key, pair in state.full_rope_cache.items() if _GROUP in state.registry_summary[key]}
        _check(drafter, builder, dsa, common, tables)
        self.builder, self._drafter, self._dsa = builder, drafter, dsa
        self._rows, self._entries, self._in_graph = rows, entries, in_graph
        self._longest, self._block_size = drafter.max_model_len, drafter.block_size
        self._requests = entries if in_graph else common.num_reqs
        if self._requests > entries:
            raise Unexpected(f"{self._requests} requests and {entries} entries of a step")
        self._steps = drafter.num_speculative_tokens - 1
        self.slots, self.seq_lens, self._offsets, self.rope = (
            self._graph_buffers(tables, state.spec_runtime_buffer)
            if in_graph
            else self._own_buffers(tables, common.block_table_tensor.device)
        )
        flat = [tensor.view(-1, cos.shape[-1]) for cos, sin in tables.values() for tensor in (cos, sin)]
        rows_of = [
            of_step[key][i].view(-1, cos.shape[-1])
            for key, (cos, _) in tables.items()
            for i in range(2)
            for of_step in self.rope
        ]
        sizes = self._block_size, self._longest, -1
        cu_seqlens = self._offsets if in_graph else []
        changing = common.block_table_tensor, common.seq_lens[:rows], common.seq_lens[:rows]
        call = DraftStepsApart(*changing, flat, *sizes, self.slots, self.seq_lens, cu_seqlens, rows_of)
        self._call, self._run = call, call.run
        self._make_metadata()

    def _own_buffers(self, tables: dict[str, tuple[Tensor, Tensor]], device: torch.device) -> tuple[Any, ...]:
        steps, entries, pairs = self._steps, self._entries, self.builder.spec_slot_mapping[0].shape[1:]
        slots = torch.empty((steps, entries, *pairs), dtype=torch.int32, device=device)
        seq_lens = torch.empty((steps, entries), dtype=torch.int32, device=device)
        rope = {key: cos.new_empty((steps, 2, entries, *cos.shape[1:])).unbind() for key, (cos, _) in tables.items()}
        of_steps = [{key: tuple(rows[d].unbind()) for key, rows in rope.items()} for d in range(steps)]
        return slots.unbind(), seq_lens.unbind(), [self._drafter.arange[: self._rows + 1]] * steps, of_steps

    def _graph_buffers(self, tables: dict[str, tuple[Tensor, Tensor]], rows: Any) -> tuple[Any, ...]:
        """Where a captured graph reads its steps."""
        drafter, steps, entries = self._drafter, self._steps, self._entries
        of_steps = [
            {key: tuple(rows[key][_GROUP][i][d][:entries] for i in range(2)) for key in tables} for d in range(steps)
        ]
        return (
            [slots[:entries] for slots in self.builder.spec_slot_mapping[:steps]],
            [seq_lens[:entries] for seq_lens in drafter.seq_lens_group[1 : steps + 1]],
            [offsets[: entries + 1] for offsets in drafter.query_start_loc_group[1 : steps + 1]],
            of_steps,
        )

    def _make_metadata(self) -> None:
        builder, drafter, dsa = self.builder, self._drafter, self._dsa
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
        self._calls: list[dict[str, Any]] = []
        self._fields: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for slots, seq_lens, offsets, rope in zip(self.slots, self.seq_lens, self._offsets, self.rope, strict=True):
            proxies = [
                sys.modules[_ROPE].RopeDataProxy({key: {_GROUP: pair} for key, pair in rope.items()}, is_cos)
                for is_cos in (True, False)
            ]
            queries = cann.Queries(offsets[: self._requests + 1], seq_lens[: self._requests], 1, 0)
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

    def make(self, positions: Tensor, common: Any) -> None:
        """All steps of requests whose last token that is kept stands at ``positions``."""
        self.launch(positions, common)
        attention = self._attention(self._host_lengths(common))
        blocks = common.block_table_tensor
        if blocks.shape[0] != self._requests:
            if self._in_graph:
                blocks = self._drafter._adjust_tensor(blocks, self._requests)
            blocks = blocks[: self._requests]
        # Objects are new in each draft: a connector may still look at the last one's.
        self.metadata = []
        kind, kind_of_step = self._dsa.AscendDSADecodeMetadata, self.builder.metadata_cls
        for (fields, decode_fields), of_step in zip(self._fields, attention, strict=True):
            decode = instance(kind, {**decode_fields, "block_table": blocks, "sas_metadata": of_step})
            self.metadata.append(instance(kind_of_step, {**fields, "decode": decode}))

    def launch(self, positions: Tensor, common: Any) -> None:
        """Step d is d tokens behind the positions."""
        lengths = common.seq_lens
        self._run(
            common.block_table_tensor, positions, lengths if lengths.shape[0] == self._rows else lengths[: self._rows]
        )

    def _attention(self, longest: list[int]) -> list[Tensor]:
        """What CANN gives for each step, in a graph where the graph reads it."""
        operator = self._dsa.DeviceOperator.get_dsa_sparse_attn_metadata_op()
        made = []
        for arguments, of_step in zip(self._calls, longest, strict=True):
            arguments["max_seqlen_kv"] = of_step
            made.append(operator(**arguments))
        if not self._in_graph:
            return made
        buffers: list[Tensor] = self.builder.spec_sas_metadata[: len(made)]
        cann.publish(buffers, made)
        return buffers

    def _host_lengths(self, common: Any) -> list[int]:
        """The longest request of each step; lengths beyond the longest sequence count from 1 again."""
        known = common._seq_lens_cpu if common._seq_lens_cpu is not None else common.seq_lens_cpu
        if known is None:
            known = common.seq_lens.cpu()
        host = (known if known.shape[0] == self._rows else known[: self._rows]).tolist()
        longest, most, steps = max(host), self._longest, range(1, self._steps + 1)
        if longest + self._steps <= most:
            return [longest + d for d in steps]
        return [max(x + d if x + d <= most else d - max(0, most - x) for x in host) for d in steps]


def _check(drafter: Any, builder: Any, dsa: Any, common: Any, tables: dict[str, tuple[Tensor, Tensor]]) -> None:
    if type(builder) is not dsa.AscendDSAMetadataBuilder or len(drafter.draft_attn_groups) != 1:
        raise Unexpected("drafts of other layers than DeepSeek-V4's MTP layer")
    if builder.model_config.hf_config.model_type != "deepseek_v4" or builder.compressor_ratio > 1:
        raise Unexpected("drafts of another model, or of a compressed layer")
    if drafter.uses_mrope or drafter.has_gdn or getattr(drafter.runner, "pcp_manager", None) is not None:
        raise Unexpected("drafts with mrope, gdn or context parallelism")
    if drafter.block_size & drafter.block_size - 1:
        raise Unexpected(f"blocks of {drafter.block_size} slots, which is no power of two")
    if len({(cos.dtype, cos.shape) for cos, _ in tables.values()}) != 1 or len(tables) > 2:
        raise Unexpected("RoPE tables of none or more than two bases, or that are not alike")
    if builder.block_size != drafter.block_size:
        raise Unexpected(f"blocks of {builder.block_size} slots for metadata and of {drafter.block_size} for slots")
    room = min([common.block_table_tensor.shape[1] * drafter.block_size, *(cos.shape[0] for cos, _ in tables.values())])
    if room < drafter.max_model_len:
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

"""Metadata builders: each adds what is its own to what the step has in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected, say_engines_own
from dsv4_npu_ops.engines.vllm_ascend import cann
from dsv4_npu_ops.engines.vllm_ascend.batch import Batch, Part, describe
from dsv4_npu_ops.engines.vllm_ascend.instances import instance
from dsv4_npu_ops.engines.vllm_ascend.step import ENGINES_OWN, Launches, TokenGroup, current

_DSA = "vllm_ascend.attention.dsa_v1"
_COMMON = "dsv4_npu_ops"
_OWN = "_dsv4_npu_ops_own"


def placed(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of ``AscendDSAMetadataBuilder.build``, with its parts."""

    def build(
        self: Any, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False, **kwargs: Any
    ) -> Any:
        step = current.step
        if step is not ENGINES_OWN:
            try:
                return _build(self, common_attn_metadata, step, kwargs)
            except Unexpected as reason:
                say_engines_own(HOOKS[0], reason)
        return original(self, common_prefix_len, common_attn_metadata, fast_build, **kwargs)

    return build


def build(
    original: Callable[..., Any],
    self: Any,
    common_prefix_len: int,
    common_attn_metadata: Any,
    fast_build: bool = False,
    **kwargs: Any,
) -> Any:
    """``AscendDSAMetadataBuilder.build`` once."""
    return placed(original)(self, common_prefix_len, common_attn_metadata, fast_build, **kwargs)


def _build(self: Any, common_attn_metadata: Any, step: Any, kwargs: dict[str, Any]) -> Any:
    common = kwargs.get("common_ratio_to_sas_metadata")
    if common is None:
        raise Unexpected("a builder without the step's dictionaries")
    block_size, live = kwargs.get("block_size", 128), kwargs.get("num_reqs_actual")
    blocks = common_attn_metadata.block_table_tensor
    if step is None:
        batch = describe(self, common_attn_metadata, live, _launches_alone(self, common_attn_metadata, block_size))
        if live is not None and live < common_attn_metadata.num_reqs:
            blocks[live : common_attn_metadata.num_reqs].zero_()
    else:
        batch = common.get(_COMMON)
        if batch is None:
            batch = common[_COMMON] = describe(self, common_attn_metadata, live, step.launches, is_runners=True)
    self.block_size = block_size
    self.common_ratio_to_sas_metadata = common
    self.prefill_ratio_to_sas_metadata = kwargs.get("prefill_ratio_to_sas_metadata")
    self.decode_ratio_to_sas_metadata = kwargs.get("decode_ratio_to_sas_metadata")
    group = self.compressor_ratio, blocks.data_ptr(), block_size
    made = batch.made.get(group)
    if made is None:
        made = batch.made[group] = _metadata(self, batch, blocks, group)
    return made


def _metadata(self: Any, batch: Batch, blocks: Tensor, group: Any) -> Any:
    """A builder's metadata of the step: what all have in common, with its own."""
    decode, prefill = batch.decode, batch.prefill
    made_decode = made_prefill = None
    if prefill is not None:
        made_prefill = _prefill(self, prefill, blocks)
    if decode is not None:
        own = batch.size.own.get(group)
        if own is None:
            own = batch.size.own[group] = _own(self, decode, blocks, batch.size.decode)
        if own.ratio not in decode.attention:
            _attend(self, decode, batch.size.own.values())
        made_decode = instance(own.kind, own.fields | decode.fields)
    fields = batch.fields.copy()
    fields["decode"], fields["prefill"], fields["hadamard"] = made_decode, made_prefill, type(self).hadamard
    return instance(self.metadata_cls, fields)


def _launches_alone(self: Any, common: Any, block_size: int) -> Launches:
    """A builder outside of the runner's step, such as that of the drafts: a launch for its own group."""
    speculative = self.speculative_config
    if speculative is not None and speculative.parallel_drafting:
        raise Unexpected("slots of parallel drafts, of which some are left out")
    table = common.block_table_tensor
    key = (table.data_ptr(), tuple(table.shape), table.stride(), block_size)
    known = getattr(self, _OWN, None)
    if known is None or known[0] != key:
        groups = [TokenGroup(table, block_size, self.slot_mapping)] if self.compressor_ratio <= 1 else []
        known = key, Launches(groups, int(self.model_config.max_model_len))
        setattr(self, _OWN, known)
    rows, tokens = common.num_reqs, common.num_input_tokens
    if rows > self.start_pos_decode.shape[0] or tokens > self.slot_mapping.shape[0]:
        raise Unexpected(f"{rows} rows and {tokens} tokens, more than a step has")
    return known[1]  # type: ignore[no-any-return]


def _own_fields(self: Any, part: Part, blocks: Tensor, dsa_v1: Any) -> dict[str, Any]:
    """Fields of a part that differ between builders."""
    ratio = self.compressor_ratio
    fields = {"block_table": blocks[part.first_row : part.first_row + part.rows], "block_size": self.block_size}
    if ratio > 1:
        # The engine's own number, which is 0 without tokens: not the room of an output, of which there is always some.
        fields["num_compressed_tokens"] = min(part.tokens, part.tokens // ratio + part.rows)
        fields["full_compress_cos"], fields["full_compress_sin"] = dsa_v1.get_full_cos_and_sin_dsa(f"c{ratio}")
        fields["slot_mapping"] = None
    else:
        fields["num_compressed_tokens"] = part.tokens
        fields["slot_mapping"] = self.slot_mapping[part.first_token : part.first_token + part.tokens]
    return fields


@dataclass(eq=False, slots=True)
class _Own:
    """What builders of one KV-cache group add to the decodes of steps of one size.

    Attributes:
        kind: of the metadata; fields: those that steps of one size have in common.
        ratio: 1, 4 or 128.
        operator, arguments: CANN's for attention; offsets of keys and the longest lengths are those of the last step.
        kv_offsets: the engine's function that gives the offsets of keys.
        indexer: see ``cann.indexer``.
    """

    kind: type
    fields: dict[str, Any]
    ratio: int
    operator: Callable[..., Tensor]
    kv_offsets: Callable[..., Tensor]
    arguments: dict[str, Any]
    indexer: Callable[[int, int], Tensor]


def _own(self: Any, part: Part, blocks: Tensor, common: dict[str, Any]) -> _Own:
    dsa_v1 = sys.modules[_DSA]
    operator, ratio = dsa_v1.DeviceOperator, max(1, self.compressor_ratio)
    fields = {**dict.fromkeys(part.fields), **common, **_own_fields(self, part, blocks, dsa_v1)}
    if ratio == 1:
        fields["slot_mapping"] = operator.pad_dsa_decode_slot_mapping(
            fields["slot_mapping"], part.tokens, self.compressor_ratio, part.rows
        )
    fields["sas_metadata"], fields["qli_metadata"] = self.decode_sas_metadata, self.decode_qli_metadata
    kv_offsets = {
        "cu_seqlens_ori_kv": None,
        "cu_seqlens_cmp_kv": operator.get_dsa_decode_cu_seqlens_cmp_kv(self.cu_seqlens_cmp_kv),
        "cmp_mask_mode": 3,
    }
    tp_size = dsa_v1.get_tensor_model_parallel_world_size()
    return _Own(
        dsa_v1.AscendDSADecodeMetadata,
        fields,
        ratio,
        operator.get_dsa_sparse_attn_metadata_op(),
        operator.get_dsa_decode_cu_seqlens_ori_kv,
        cann.attention_arguments(self, operator, tp_size, part.queries, ratio, kv_offsets),
        cann.indexer(self, part.queries),
    )


def _attend(self: Any, part: Part, groups: Iterable[_Own]) -> None:
    """CANN's metadata for all groups that steps of this size have had, copied to buffers at fixed addresses."""
    queries, attention = part.queries, part.attention
    buffers, made = [], []
    for own in groups:
        if own.ratio in attention:
            continue
        own.arguments["cu_seqlens_ori_kv"] = own.kv_offsets(
            self.decode_ratio_to_sas_metadata,
            "cu_seqlens_ori_kv",
            queries.seq_lens,
            part.rows,
            self._zero_i32,
            self.cu_seqlens_ori_kv,
        )
        own.arguments["max_seqlen_q"], own.arguments["max_seqlen_kv"] = queries.longest_query, queries.longest_sequence
        attention[own.ratio] = own.operator(**own.arguments)
        buffers.append(own.fields["sas_metadata"])
        made.append(attention[own.ratio])
        if 0 not in attention:
            attention[0] = own.indexer(queries.longest_query, queries.longest_sequence)
            buffers.append(own.fields["qli_metadata"])
            made.append(attention[0])
    cann.publish(buffers, made)


def _prefill(self: Any, part: Part, blocks: Tensor) -> Any:
    dsa_v1 = sys.modules[_DSA]
    ratio = max(1, self.compressor_ratio)
    if ratio not in part.attention:
        kv_offsets = {"cu_seqlens_ori_kv": part.queries.offsets, "cu_seqlens_cmp_kv": None}
        tp_size = dsa_v1.get_tensor_model_parallel_world_size()
        part.attention[ratio] = cann.attention_metadata(
            self, dsa_v1.DeviceOperator, tp_size, part.queries, ratio, kv_offsets
        )
    if 0 not in part.attention:
        part.attention[0] = cann.indexer(self, part.queries)(part.queries.longest_query, part.queries.longest_sequence)
    fields = _own_fields(self, part, blocks, dsa_v1)
    fields["sas_metadata"], fields["qli_metadata"] = part.attention[ratio], part.attention[0]
    return instance(dsa_v1.AscendDSAPrefillMetadata, {**part.fields, **fields})


HOOKS = (Hook(f"{_DSA}.AscendDSAMetadataBuilder.build", build, "0.23.0", "0.23.0", placed=placed),)

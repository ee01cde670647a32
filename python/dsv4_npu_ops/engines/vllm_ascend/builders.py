"""Metadata builders: each adds what is its own to what the step has in common."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected
from dsv4_npu_ops.engines.vllm_ascend import cann
from dsv4_npu_ops.engines.vllm_ascend.batch import Batch, Part, describe
from dsv4_npu_ops.engines.vllm_ascend.compressor import RESULTS
from dsv4_npu_ops.engines.vllm_ascend.instances import instance
from dsv4_npu_ops.engines.vllm_ascend.step import ENGINES_OWN, Launches, TokenGroup, current
from dsv4_npu_ops.layout.capacity import group_capacity

_DSA = "vllm_ascend.attention.dsa_v1"
_COMMON = "dsv4_npu_ops"
_OWN = "_dsv4_npu_ops_own"
_FIELDS = "_dsv4_npu_ops_fields"


def build(
    original: Callable[..., Any],
    self: Any,
    common_prefix_len: int,
    common_attn_metadata: Any,
    fast_build: bool = False,
    **kwargs: Any,
) -> Any:
    """``AscendDSAMetadataBuilder.build``, with its parts."""
    step = current.step
    if step is ENGINES_OWN:
        return original(self, common_prefix_len, common_attn_metadata, fast_build, **kwargs)
    common = kwargs.get("common_ratio_to_sas_metadata")
    if common is None:
        raise Unexpected("a builder without the step's dictionaries")
    block_size, live = kwargs.get("block_size", 128), kwargs.get("num_reqs_actual")
    if step is None:
        _fill_alone(self, common_attn_metadata, block_size, live)
    batch: Batch | None = common.get(_COMMON)
    if batch is None:
        batch = common[_COMMON] = describe(self, common_attn_metadata, live)
    self.block_size = block_size
    self.common_ratio_to_sas_metadata = common
    self.prefill_ratio_to_sas_metadata = kwargs.get("prefill_ratio_to_sas_metadata")
    self.decode_ratio_to_sas_metadata = kwargs.get("decode_ratio_to_sas_metadata")
    blocks = common_attn_metadata.block_table_tensor
    if step is None and live is not None and live < common_attn_metadata.num_reqs:
        blocks[live : common_attn_metadata.num_reqs].zero_()
    group = self.compressor_ratio, blocks.data_ptr(), block_size
    made: Any = batch.made.get(group) if step is not None else None
    if made is None:
        prefill = None if batch.prefill is None else _prefill(self, batch, batch.prefill, blocks)
        decode = None if batch.decode is None else _decode(self, batch, batch.decode, blocks)
        own = {"decode": decode, "prefill": prefill, "hadamard": type(self).hadamard}
        made = batch.made[group] = instance(self.metadata_cls, batch.fields, own)
    return made


def _fill_alone(self: Any, common: Any, block_size: int, live: int | None) -> None:
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
    requests = rows if live is None else live
    known[1].run(common.query_start_loc, common.seq_lens, tokens, self.start_pos_decode, requests, rows)


def _own_fields(self: Any, part: Part, blocks: Tensor, dsa_v1: Any) -> dict[str, Any]:
    """Fields of a part that differ between builders."""
    ratio = self.compressor_ratio
    fields = {"block_table": blocks[part.first_row : part.first_row + part.rows], "block_size": self.block_size}
    if ratio > 1:
        fields["num_compressed_tokens"] = group_capacity(part.tokens, part.rows, ratio)
        fields["full_compress_cos"], fields["full_compress_sin"] = dsa_v1.get_full_cos_and_sin_dsa(f"c{ratio}")
        fields["slot_mapping"] = None
    else:
        fields["num_compressed_tokens"] = part.tokens
        fields["slot_mapping"] = self.slot_mapping[part.first_token : part.first_token + part.tokens]
    return fields


def _decode(self: Any, batch: Batch, part: Part, blocks: Tensor) -> Any:
    dsa_v1 = sys.modules[_DSA]
    ratio = max(1, self.compressor_ratio)
    if ratio not in part.attention:
        part.attention[ratio] = _decode_attention(self, part, ratio, dsa_v1)
    if 0 not in part.attention:
        part.attention[0] = cann.indexer_metadata(self, part.queries)
    _publish(part, self.decode_sas_metadata, part.attention[ratio])
    _publish(part, self.decode_qli_metadata, part.attention[0])
    key = batch.key, blocks.data_ptr(), self.block_size
    kept = self.__dict__.get(_FIELDS)
    if kept is None or kept[0] != key or batch.key is None:
        fields = _own_fields(self, part, blocks, dsa_v1)
        if ratio == 1:
            fields["slot_mapping"] = dsa_v1.DeviceOperator.pad_dsa_decode_slot_mapping(
                fields["slot_mapping"], part.tokens, self.compressor_ratio, part.rows
            )
        fields["sas_metadata"], fields["qli_metadata"] = self.decode_sas_metadata, self.decode_qli_metadata
        kept = key, fields
        setattr(self, _FIELDS, kept)
    return instance(dsa_v1.AscendDSADecodeMetadata, part.fields, kept[1], {RESULTS: part.results})


def _decode_attention(self: Any, part: Part, ratio: int, dsa_v1: Any) -> Tensor:
    operator = dsa_v1.DeviceOperator
    kv_offsets = {
        "cu_seqlens_ori_kv": operator.get_dsa_decode_cu_seqlens_ori_kv(
            self.decode_ratio_to_sas_metadata,
            "cu_seqlens_ori_kv",
            part.queries.seq_lens,
            part.rows,
            self._zero_i32,
            self.cu_seqlens_ori_kv,
        ),
        "cu_seqlens_cmp_kv": operator.get_dsa_decode_cu_seqlens_cmp_kv(self.cu_seqlens_cmp_kv),
        "cmp_mask_mode": 3,
    }
    tp_size = dsa_v1.get_tensor_model_parallel_world_size()
    return cann.attention_metadata(self, operator, tp_size, part.queries, ratio, kv_offsets)


def _publish(part: Part, buffer: Tensor, values: Tensor) -> None:
    """Copies to a buffer at a fixed address, which several builders share."""
    if id(buffer) not in part.published:
        part.published.add(id(buffer))
        buffer.copy_(values[: buffer.shape[0]])


def _prefill(self: Any, batch: Batch, part: Part, blocks: Tensor) -> Any:
    dsa_v1 = sys.modules[_DSA]
    ratio = max(1, self.compressor_ratio)
    if ratio not in part.attention:
        kv_offsets = {"cu_seqlens_ori_kv": part.queries.offsets, "cu_seqlens_cmp_kv": None}
        tp_size = dsa_v1.get_tensor_model_parallel_world_size()
        part.attention[ratio] = cann.attention_metadata(
            self, dsa_v1.DeviceOperator, tp_size, part.queries, ratio, kv_offsets
        )
    if 0 not in part.attention:
        part.attention[0] = cann.indexer_metadata(self, part.queries)
    fields = _own_fields(self, part, blocks, dsa_v1)
    fields["sas_metadata"], fields["qli_metadata"] = part.attention[ratio], part.attention[0]
    return instance(dsa_v1.AscendDSAPrefillMetadata, part.fields, fields, {RESULTS: part.results})


HOOKS = (Hook(f"{_DSA}.AscendDSAMetadataBuilder.build", build, "0.23.0", "0.23.0"),)

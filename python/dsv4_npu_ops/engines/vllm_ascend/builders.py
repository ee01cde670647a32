"""Metadata of a step: what all builders have in common is computed once, and what each has of its own in one launch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected, say_once
from dsv4_npu_ops.engines.shadow import compare
from dsv4_npu_ops.engines.vllm_ascend import cann
from dsv4_npu_ops.engines.vllm_ascend.compressor import RESULTS
from dsv4_npu_ops.engines.vllm_ascend.instances import instance
from dsv4_npu_ops.engines.vllm_ascend.rope import bind
from dsv4_npu_ops.engines.vllm_ascend.step import (
    ENGINES_OWN,
    MOST_SIZES,
    Launches,
    TokenGroup,
    builders_of,
    current,
)

_DSA = "vllm_ascend.attention.dsa_v1"
_BUILDER = f"{_DSA}.AscendDSAMetadataBuilder"
_RUNNER = "vllm_ascend.worker.model_runner_v1.NPUModelRunner"
_COMMON = "dsv4_npu_ops"
_OWN = "_dsv4_npu_ops_own"
_VIEWS = "_dsv4_npu_ops_views"
_FIELDS = "_dsv4_npu_ops_fields"


def build_attention_metadata(
    original: Callable[..., Any],
    self: Any,
    num_tokens: int,
    num_reqs: int,
    max_query_len: int,
    num_tokens_padded: int | None = None,
    num_reqs_padded: int | None = None,
    ubatch_slices: Any = None,
    logits_indices: Tensor | None = None,
    use_spec_decode: bool = False,
    for_cudagraph_capture: bool = False,
    num_scheduled_tokens: dict[str, int] | None = None,
    num_scheduled_tokens_np: Any = None,
    cascade_attn_prefix_lens: list[list[int]] | None = None,
) -> Any:
    """``NPUModelRunner._build_attention_metadata``: sees all KV-cache groups, and so makes the step's launch."""
    step = _prepare(self, num_tokens_padded or num_tokens, num_reqs, num_reqs_padded or num_reqs, num_scheduled_tokens)
    current.step = step
    try:
        return original(
            self,
            num_tokens,
            num_reqs,
            max_query_len,
            num_tokens_padded,
            num_reqs_padded,
            ubatch_slices,
            logits_indices,
            use_spec_decode,
            for_cudagraph_capture,
            num_scheduled_tokens,
            num_scheduled_tokens_np,
            cascade_attn_prefix_lens,
        )
    finally:
        current.step = None


def _prepare(self: Any, tokens: int, requests: int, rows: int, scheduled: dict[str, int] | None) -> Any:
    if not getattr(self, "use_compress", False):
        return ENGINES_OWN
    try:
        if self.use_cp:
            raise Unexpected("context parallelism")
        builders = builders_of(self, sys.modules[_DSA].AscendDSAMetadataBuilder)
        # A dummy step has lengths of no request, and slots that the engine has chosen.
        if scheduled is None:
            return ENGINES_OWN
        builders.fill(self, tokens, requests, rows)
    except Unexpected as reason:
        say_once(f"metadata of vLLM-Ascend's builders is the engine's own for steps like this: {reason}")
        return ENGINES_OWN
    return builders


def shadow_build_attention_metadata(
    original: Callable[..., Any], self: Any, num_tokens: int, num_reqs: int, *args: Any, **kwargs: Any
) -> Any:
    """The engine builds; start positions and slots are made beside it and compared."""
    result = original(self, num_tokens, num_reqs, *args, **kwargs)
    if kwargs.get("num_scheduled_tokens") is None or not isinstance(result[0], dict):
        return result
    tokens = kwargs.get("num_tokens_padded") or num_tokens
    rows = kwargs.get("num_reqs_padded") or num_reqs
    theirs, groups = {}, []
    for i, attn_groups in enumerate(self.attn_groups):
        builder, table = attn_groups[0].get_metadata_builder(0), self.input_batch.block_table[i]
        if type(builder) is not sys.modules[_DSA].AscendDSAMetadataBuilder:
            return result
        metadata = result[0][attn_groups[0].layer_names[0]]
        for part in (metadata.decode, metadata.prefill):
            if part is not None:
                theirs[f"start_pos of group {i}, {type(part).__name__}"] = part.start_pos.clone()
        if builder.compressor_ratio <= 1:
            theirs[f"slots of group {i}"] = builder.slot_mapping[:tokens].clone()
            groups.append(TokenGroup(table.get_device_tensor(), table.block_size, builder.slot_mapping.clone()))
    decodes = metadata.num_decodes
    start_pos = self.seq_lens.new_empty(rows)

    def again() -> None:
        launches = Launches(groups, int(self.max_model_len))
        launches.run(self.query_start_loc.gpu, self.seq_lens, tokens, start_pos, num_reqs, rows)

    again()
    slots = iter(groups)
    ours = {
        name: next(slots).slots[:tokens]
        if name.startswith("slots")
        else start_pos[:decodes]
        if "Decode" in name
        else start_pos[decodes:]
        for name in theirs
    }
    compare("vLLM-Ascend", "_build_attention_metadata", theirs, ours, again)
    return result


@dataclass(eq=False, slots=True)
class _Part:
    """The decodes or the prefills of a step.

    Attributes:
        first_row, rows, first_token, tokens: of the batch.
        queries: for CANN's ops.
        fields: what their metadata have in every builder.
        attention: what CANN's ops gave, by compress ratio; 0 is the indexer's.
        published: buffers that this step has filled with it.
        results: of the compressors, by their inputs.
    """

    first_row: int
    rows: int
    first_token: int
    tokens: int
    queries: cann.Queries
    fields: dict[str, Any]
    attention: dict[int, Tensor] = field(default_factory=dict)
    published: set[int] = field(default_factory=set)
    results: dict[Any, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Batch:
    """What all builders of a step have in common.

    Attributes:
        made: metadata by compress ratio and block table, which are the same for builders of one KV-cache group.
        key: equal in steps whose tensors are the same views of the same buffers; None where that is not known.
        fields: of the step's metadata.
    """

    key: Any
    fields: dict[str, Any]
    decode: _Part | None
    prefill: _Part | None
    made: dict[Any, Any] = field(default_factory=dict)


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
    batch: _Batch | None = common.get(_COMMON)
    if batch is None:
        batch = common[_COMMON] = _describe(self, common_attn_metadata, live)
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


def _host_lengths(common: Any) -> Tensor:
    for lengths in (common._seq_lens_cpu, common.seq_lens_cpu):
        if lengths is not None:
            return lengths  # type: ignore[no-any-return]
    return common.seq_lens.cpu()  # type: ignore[no-any-return]


@dataclass(eq=False)
class _Views:
    """What steps of one size over the same buffers have in common: views, and what gathers their RoPE rows."""

    gather: Callable[[], Any]
    fields: dict[str, Any]
    decode: dict[str, Any]


def _describe(self: Any, common: Any, live: int | None) -> _Batch:
    if self.model_config.hf_config.model_type != "deepseek_v4":
        raise Unexpected("another model than DeepSeek-V4")
    dsa_v1 = sys.modules[_DSA]
    decodes, prefills, decode_tokens, prefill_tokens = dsa_v1.split_decodes_and_prefills(
        common, decode_threshold=self.decode_threshold
    )
    rows, tokens = common.num_reqs, common.num_actual_tokens
    if decodes + prefills != rows or decode_tokens + prefill_tokens != tokens:
        raise Unexpected("rows that are neither decodes nor prefills")
    live = rows if live is None else live
    key = None
    if not prefills:
        buffers = common.positions, common.query_start_loc, common.seq_lens, self.start_pos_decode
        key = rows, tokens, common.num_input_tokens, live, *(buffer.data_ptr() for buffer in buffers)
    kept = self.__dict__.setdefault(_VIEWS, {})
    views: _Views | None = None if key is None else kept.get(key)
    if views is None:
        views = _views(self, common, decodes, decode_tokens, prefills, live)
        if key is not None:
            if len(kept) >= MOST_SIZES:
                kept.clear()
            kept[key] = views
    views.gather()
    offsets = common.query_start_loc_cpu
    widths = offsets.diff()
    if widths.shape[0] != rows:
        widths = widths[:rows]
    fields = dict(views.fields, query_lens=widths, attn_state=common.attn_state)
    fields["query_start_loc"] = common.query_start_loc
    lengths = _host_lengths(common)
    decode = prefill = None
    if decodes:
        host = (lengths if lengths.shape[0] == decodes else lengths[:decodes]).tolist()
        decode = _decodes(
            offsets, views.decode, decode_tokens, host, max((widths[:decodes] if prefills else widths).tolist())
        )
    if prefills:
        prefill = _prefills(self, common, fields, lengths, decodes, max(min(live - decodes, prefills), 0))
    return _Batch(key, fields, decode, prefill)


def _views(self: Any, common: Any, decodes: int, decode_tokens: int, prefills: int, live: int) -> _Views:
    rows, tokens = common.num_reqs, common.num_actual_tokens
    positions = common.positions[: common.num_input_tokens].long()
    gather = bind(positions, not prefills)
    cos, sin = gather()
    if decodes and prefills:
        own = bind(positions[:decode_tokens], True)()
    else:
        own = cos, sin
    fields = {
        "num_input_tokens": common.num_input_tokens,
        "num_actual_tokens": tokens,
        "slot_mapping": None,
        "head_dim": self.model_config.get_head_size(),
        "num_decodes": decodes,
        "num_decode_tokens": decode_tokens,
        "num_prefills": prefills,
        "attn_mask": None,
        "block_tables": None,
        "seq_lens": common.seq_lens[:rows],
        "cos": cos,
        "sin": sin,
    }
    decode = {
        "input_positions": positions[:decode_tokens],
        "seq_lens": common.seq_lens[:decodes],
        "query_start_loc": common.query_start_loc[: decodes + 1],
        "cos": own[0][:decode_tokens, ...],
        "sin": own[1][:decode_tokens, ...],
        "start_pos": self.start_pos_decode[:decodes],
        "num_reqs_actual": min(live, decodes),
    }
    # Rows that go into new buffers are gathered once, here.
    return _Views(gather if not prefills else (lambda: None), fields, decode)


def _decodes(offsets: Tensor, views: dict[str, Any], tokens: int, host: list[int], longest_query: int) -> _Part:
    rows = len(host)
    longest = max(host)
    fields = dict(views, seq_lens_list=host, max_seq_lens=longest, max_seqlen_kv=longest, max_seqlen_q=longest_query)
    fields["query_start_loc_cpu"] = offsets if offsets.shape[0] == rows + 1 else offsets[: rows + 1]
    queries = cann.Queries(views["query_start_loc"], views["seq_lens"], longest_query, longest)
    return _Part(0, rows, 0, tokens, queries, fields)


def _prefills(self: Any, common: Any, step: dict[str, Any], lengths: Tensor, first: int, live: int) -> _Part:
    first_token, tokens, rows = step["num_decode_tokens"], common.num_actual_tokens, step["num_prefills"]
    widths, seq_lens = step["query_lens"][first:], step["seq_lens"][first:]
    offsets = common.query_start_loc[first:] - common.query_start_loc[first] if first else common.query_start_loc
    queries = cann.Queries(offsets, seq_lens, int(widths.max()), int(lengths[first:].max()))
    fields = {
        "attn_mask": None,
        "query_lens": widths.int(),
        "seq_lens": seq_lens,
        "context_lens": seq_lens,
        "input_positions": common.positions[first_token:tokens].long(),
        "max_query_len": queries.longest_query,
        "max_seq_lens": queries.longest_sequence,
        "query_start_loc": offsets,
        "cos": step["cos"][first_token:tokens],
        "sin": step["sin"][first_token:tokens],
        "start_pos": self.start_pos_decode[first : first + rows],
        "num_reqs_actual": live,
    }
    return _Part(first, rows, first_token, tokens - first_token, queries, fields)


def _own_fields(self: Any, part: _Part, blocks: Tensor, dsa_v1: Any) -> dict[str, Any]:
    """Fields of a part that differ between builders."""
    ratio = self.compressor_ratio
    fields = {"block_table": blocks[part.first_row : part.first_row + part.rows], "block_size": self.block_size}
    if ratio > 1:
        fields["num_compressed_tokens"] = min(part.tokens, part.tokens // ratio + part.rows)
        fields["full_compress_cos"], fields["full_compress_sin"] = dsa_v1.get_full_cos_and_sin_dsa(f"c{ratio}")
        fields["slot_mapping"] = None
    else:
        fields["num_compressed_tokens"] = part.tokens
        fields["slot_mapping"] = self.slot_mapping[part.first_token : part.first_token + part.tokens]
    return fields


def _decode(self: Any, batch: _Batch, part: _Part, blocks: Tensor) -> Any:
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


def _decode_attention(self: Any, part: _Part, ratio: int, dsa_v1: Any) -> Tensor:
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


def _publish(part: _Part, buffer: Tensor, values: Tensor) -> None:
    """Copies to a buffer at a fixed address, which several builders share."""
    if id(buffer) not in part.published:
        part.published.add(id(buffer))
        buffer.copy_(values[: buffer.shape[0]])


def _prefill(self: Any, batch: _Batch, part: _Part, blocks: Tensor) -> Any:
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


HOOKS = (
    Hook(
        f"{_RUNNER}._build_attention_metadata",
        build_attention_metadata,
        "0.23.0",
        "0.23.0",
        shadow_build_attention_metadata,
    ),
    Hook(f"{_BUILDER}.build", build, "0.23.0", "0.23.0"),
)

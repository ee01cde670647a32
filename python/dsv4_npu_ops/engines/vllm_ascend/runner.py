"""The model runner, which sees all KV-cache groups of a step, and so can give its builders a launch that they share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected, say_once
from dsv4_npu_ops.engines.shadow import compare
from dsv4_npu_ops.engines.vllm_ascend.step import ENGINES_OWN, Launches, TokenGroup, builders_of, current

_DSA = "vllm_ascend.attention.dsa_v1"
_RUNNER = "vllm_ascend.worker.model_runner_v1.NPUModelRunner"


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
    """``NPUModelRunner._build_attention_metadata``: sees all KV-cache groups, so that its builders share a launch."""
    # A builder of a micro-batch sees some rows of the tables.
    scheduled = num_scheduled_tokens if ubatch_slices is None else None
    current.step = _prepare(self, num_reqs_padded or num_reqs, scheduled)
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


def _prepare(self: Any, rows: int, scheduled: dict[str, int] | None) -> Any:
    if not getattr(self, "use_compress", False):
        return ENGINES_OWN
    try:
        if self.use_cp:
            raise Unexpected("context parallelism")
        builders = builders_of(self, sys.modules[_DSA].AscendDSAMetadataBuilder)
        # A dummy step has lengths of no request, and slots that the engine has chosen.
        if scheduled is None:
            return ENGINES_OWN
        if rows > builders.start_pos.shape[0]:
            raise Unexpected(f"{rows} rows, more than max_num_seqs")
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
        for call in launches.bind(self.query_start_loc.gpu, self.seq_lens, tokens, start_pos, num_reqs, rows):
            call()

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


HOOKS = (
    Hook(
        f"{_RUNNER}._build_attention_metadata",
        build_attention_metadata,
        "0.23.0",
        "0.23.0",
        shadow_build_attention_metadata,
    ),
)

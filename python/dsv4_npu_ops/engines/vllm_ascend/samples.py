"""What a drafter makes of a step's samples, by one launch: next tokens, counts, indices and rejected tokens."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected
from dsv4_npu_ops.engines.shadow import compare
from dsv4_npu_ops.engines.vllm_ascend.instances import instance
from dsv4_npu_ops.layout.kv_layout import INT32_MAX
from dsv4_npu_ops.ops.bound_call import BoundCall

_RUNNER = "vllm_ascend.worker.model_runner_v1.NPUModelRunner"
_PROPOSER_MODULE = "vllm_ascend.spec_decode.llm_base_proposer"
_PROPOSER = f"{_PROPOSER_MODULE}.AscendSpecDecodeBaseProposer"
_ROUND, _JUDGED = "_dsv4_npu_ops_round", "_dsv4_npu_ops_judged"


@dataclass(slots=True, eq=False)
class _Judged:
    """What a round's launch gave beside the next tokens; the engine asks for it with the counts."""

    counts: Tensor
    indices: Tensor
    rejected: Tensor


def propose_draft_token_ids(
    original: Callable[..., Any],
    self: Any,
    valid_sampled_token_ids: Any,
    sampling_metadata: Any,
    scheduler_output: Any,
    spec_decode_metadata: Any,
    spec_decode_common_attn_metadata: Any,
    positions: Tensor,
    num_scheduled_tokens: int,
    hidden_states: Tensor,
    aux_hidden_states: Any = None,
    sample_hidden_states: Any = None,
    target_model_batch_desc: Any = None,
) -> Any:
    """``NPUModelRunner.propose_draft_token_ids``: tells the drafter of the step before it asks for next tokens."""
    drafter = self.drafter
    if drafter and getattr(self, "use_compress", False) and spec_decode_metadata is not None:
        drafter.__dict__[_ROUND] = spec_decode_metadata, spec_decode_common_attn_metadata
    try:
        return original(
            self,
            valid_sampled_token_ids,
            sampling_metadata,
            scheduler_output,
            spec_decode_metadata,
            spec_decode_common_attn_metadata,
            positions,
            num_scheduled_tokens,
            hidden_states,
            aux_hidden_states,
            sample_hidden_states,
            target_model_batch_desc,
        )
    finally:
        if drafter:
            drafter.__dict__.pop(_ROUND, None)
            drafter.__dict__.pop(_JUDGED, None)


def prepare_next_token_ids_padded(
    original: Callable[..., Any],
    self: Any,
    sampled_token_ids: Tensor,
    requests: dict[str, Any],
    gpu_input_batch: Any,
    discard_request_indices: Tensor,
    num_discarded_requests: int,
) -> tuple[Tensor, Tensor]:
    """``prepare_next_token_ids_padded``, and with it what ``prepare_inputs_padded`` is going to be asked for."""
    self.__dict__.pop(_JUDGED, None)
    if not getattr(self, "use_compress", False) or not sampled_token_ids.is_contiguous():
        raise Unexpected("samples of another model, or that are not contiguous")
    samples, backups = sampled_token_ids, None
    if num_discarded_requests > 0:
        backups = _backup_tokens(self, requests, gpu_input_batch, samples.shape[0]).to(samples.dtype)
        samples = samples.index_fill(0, discard_request_indices[:num_discarded_requests], -1)
    tokens, counts, *of_round = _advance(self.__dict__.get(_ROUND), samples, backups, num_discarded_requests)
    if of_round:
        setattr(self, _JUDGED, _Judged(counts, *of_round))
    return tokens, counts


def _backup_tokens(self: Any, requests: dict[str, Any], batch: Any, rows: int) -> Tensor:
    """The token behind which a request that is discarded goes on, as the engine finds it."""
    count = batch.num_reqs
    lengths = batch.num_tokens_no_spec[:count].tolist()
    buffer = self.backup_next_token_ids
    buffer.np[:count] = [
        requests[name].get_token_id(length - 1) for name, length in zip(batch.req_ids, lengths, strict=False)
    ]
    buffer.copy_to_gpu(count)
    return buffer.gpu[:rows]  # type: ignore[no-any-return]


@cache
def _samples(lengths_are_final: bool) -> BoundCall:
    """The op of all samples: what it is called with changes from call to call, but for two numbers."""
    some = torch.empty(0, dtype=torch.int32)
    tensors = [some, some, None, None, None]
    return BoundCall("advance_step__samples", (*tensors, INT32_MAX, lengths_are_final), range(len(tensors)))


def _advance(round_of: Any, samples: Tensor, backups: Tensor | None, discarded: int) -> list[Tensor]:
    """Next tokens and counts of valid samples; of a round that is known, also sample indices and rejected tokens."""
    rows = samples.shape[0]
    if round_of is None or round_of[1].num_reqs != rows:
        # Rows of which only the samples are looked at: any length does.
        lengths = torch.ones(rows, dtype=torch.int32, device=samples.device)
        return _samples(False).run(lengths, samples, None, None, backups)[:2]
    speculative, common = round_of
    drafts = None
    if discarded or 0 in speculative.num_draft_tokens:
        ends = speculative.cu_num_draft_tokens
        drafts = torch.diff(ends, prepend=ends.new_zeros(1))
    offsets = _first(common.query_start_loc, rows + 1)
    return _samples(True).run(_first(common.seq_lens, rows), samples, offsets, drafts, backups)


def _first(values: Tensor, count: int) -> Tensor:
    """``values[:count]``; a view takes longer than to see that none is needed."""
    return values if values.shape[0] == count else values[:count]


def shadow_prepare_next_token_ids_padded(
    original: Callable[..., Any],
    self: Any,
    sampled_token_ids: Tensor,
    requests: dict[str, Any],
    gpu_input_batch: Any,
    discard_request_indices: Tensor,
    num_discarded_requests: int,
) -> tuple[Tensor, Tensor]:
    """The engine's tokens are used; ours are found beside them and compared."""
    theirs: tuple[Tensor, Tensor] = original(
        self, sampled_token_ids, requests, gpu_input_batch, discard_request_indices, num_discarded_requests
    )
    samples = sampled_token_ids.index_fill(0, discard_request_indices[:num_discarded_requests], -1)
    backups = self.backup_next_token_ids.gpu[: samples.shape[0]]

    def again() -> list[Tensor]:
        return _advance(None, samples, backups, num_discarded_requests)

    tokens, counts = again()
    compare(
        "vLLM-Ascend",
        "prepare_next_token_ids_padded",
        {"next_token_ids": theirs[0], "valid_sampled_tokens_count": theirs[1].int()},
        {"next_token_ids": tokens, "valid_sampled_tokens_count": counts},
        again,
    )
    return theirs


def prepare_inputs_padded(
    original: Callable[..., Any],
    self: Any,
    common_attn_metadata: Any,
    spec_decode_metadata: Any,
    valid_sampled_tokens_count: Tensor,
) -> tuple[Any, Tensor, Tensor, Tensor]:
    """``prepare_inputs_padded``: what the launch of the next tokens gave, or the engine's own."""
    judged: _Judged | None = self.__dict__.get(_JUDGED)
    if judged is None or judged.counts is not valid_sampled_tokens_count or self.pcp_size > 1:
        return original(  # type: ignore[no-any-return]
            self, common_attn_metadata, spec_decode_metadata, valid_sampled_tokens_count
        )
    given, runner = common_attn_metadata, self.runner
    tokens = given.query_start_loc_cpu.tolist()[-1]
    kind = sys.modules[_PROPOSER_MODULE].AscendCommonAttentionMetadata
    fields = dict(zip(_KEPT_FIELDS, _kept(given), strict=True))
    fields |= {
        "num_actual_tokens": tokens,
        "max_seq_len": 0,
        "actual_seq_lengths_q": runner.actual_seq_lengths_q,
        "attn_state": runner.attn_state,
        "decode_token_per_req": runner.decode_token_per_req,
    }
    return instance(kind, fields), self.arange[:tokens], judged.indices, judged.rejected


_KEPT_FIELDS = (
    "query_start_loc",
    "query_start_loc_cpu",
    "seq_lens",
    "seq_lens_cpu",
    "_seq_lens_cpu",
    "seq_lens_cpu_upper_bound",
    "num_reqs",
    "num_input_tokens",
    "max_query_len",
    "block_table_tensor",
    "slot_mapping",
    "positions",
    "positions_cpu",
    "num_computed_tokens_cpu",
    "_num_computed_tokens_cpu",
    "is_prefilling",
)
_kept = attrgetter(*_KEPT_FIELDS)

HOOKS = (
    Hook(f"{_RUNNER}.propose_draft_token_ids", propose_draft_token_ids, "0.23.0", "0.23.0"),
    Hook(
        f"{_PROPOSER}.prepare_next_token_ids_padded",
        prepare_next_token_ids_padded,
        "0.23.0",
        "0.23.0",
        shadow_prepare_next_token_ids_padded,
    ),
    Hook(f"{_PROPOSER}.prepare_inputs_padded", prepare_inputs_padded, "0.23.0", "0.23.0"),
)

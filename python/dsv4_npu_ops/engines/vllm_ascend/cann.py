"""Calls of CANN's own metadata ops, which stay what they are: their arguments for a part of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_UNLIMITED = (1 << 63) - 1
_FIXED = "_dsv4_npu_ops_attention_arguments"


@dataclass(slots=True)
class Queries:
    """The rows of a part of a step (its decodes, or its prefills).

    Attributes:
        offsets: ``[rows + 1]`` from 0.
        seq_lens: ``[rows]``.
        longest_query, longest_sequence: on the host.
    """

    offsets: Tensor
    seq_lens: Tensor
    longest_query: int
    longest_sequence: int


def attention_metadata(
    builder: Any, device_operator: Any, tp_size: int, queries: Queries, ratio: int, kv_offsets: dict[str, Any]
) -> Tensor:
    """What sparse attention wants to know, for layers of a ratio (1, 4 or 128).

    Args:
        kv_offsets: ``cu_seqlens_ori_kv``, ``cu_seqlens_cmp_kv`` and, where one is given, ``cmp_mask_mode``.
    """
    arguments = attention_arguments(builder, device_operator, tp_size, queries, ratio, kv_offsets)
    return device_operator.get_dsa_sparse_attn_metadata_op()(**arguments)  # type: ignore[no-any-return]


def attention_arguments(
    builder: Any, device_operator: Any, tp_size: int, queries: Queries, ratio: int, kv_offsets: dict[str, Any]
) -> dict[str, Any]:
    """Arguments of ``attention_metadata``'s op."""
    fixed = builder.__dict__.get(_FIXED)
    if fixed is None:
        fixed = _fixed_arguments(builder, device_operator, tp_size, ratio)
        setattr(builder, _FIXED, fixed)
    return {
        **fixed,
        **kv_offsets,
        "cu_seqlens_q": queries.offsets,
        "seqused_kv": queries.seq_lens,
        "max_seqlen_q": queries.longest_query,
        "max_seqlen_kv": queries.longest_sequence,
        "batch_size": queries.seq_lens.shape[0],
    }


def _fixed_arguments(builder: Any, device_operator: Any, tp_size: int, ratio: int) -> dict[str, Any]:
    """Those that do not depend on a step."""
    config = builder.model_config.hf_config
    arguments = dict(
        device_operator.get_dsa_sparse_attn_metadata_kwargs(builder.seqused_q.device),
        num_heads_q=config.num_attention_heads // tp_size,
        num_heads_kv=1,
        head_dim=builder.model_config.get_head_size(),
        seqused_q=builder.seqused_q,
        cmp_ratio=ratio,
        ori_mask_mode=4,
        ori_win_left=config.sliding_window - 1,
        ori_win_right=0,
        layout_q="TND",
        layout_kv="PA_ND",
        has_ori_kv=True,
        has_cmp_kv=ratio > 1,
    )
    if ratio == 4:
        arguments["cmp_topk"] = config.index_topk
    if ratio > 1:
        arguments["cmp_mask_mode"] = 3
    return arguments


def publish(buffers: list[Tensor], values: list[Tensor]) -> None:
    """Copies what CANN gave to buffers at fixed addresses, which may be shorter, by one call."""
    for i, buffer in enumerate(buffers):
        if values[i].numel() != buffer.numel():
            values[i] = values[i][: buffer.shape[0]]
    torch._foreach_copy_(buffers, values)


def indexer(builder: Any, queries: Queries) -> Callable[[int, int], Tensor]:
    """What makes the indexer's metadata of these rows, from the longest query and sequence of a step."""
    config = builder.model_config.hf_config
    ends, seq_lens = queries.offsets[1:], queries.seq_lens
    fixed = dict(
        num_heads_q=config.index_n_heads,
        num_heads_k=1,
        head_dim=config.index_head_dim,
        query_quant_mode=0,
        key_quant_mode=0,
        batch_size=seq_lens.shape[0],
        layout_query="TND",
        layout_key="PA_BSND",
        sparse_count=config.index_topk,
        sparse_mode=3,
        pre_tokens=_UNLIMITED,
        next_tokens=_UNLIMITED,
        cmp_ratio=4,
        device=str(builder.seqused_q.device),
    )

    def metadata(longest_query: int, longest_sequence: int) -> Tensor:
        return torch.ops._C_ascend.npu_vllm_quant_lightning_indexer_metadata(  # type: ignore[no-any-return]
            actual_seq_lengths_query=ends.clone(),
            actual_seq_lengths_key=seq_lens.clone(),
            max_seqlen_q=longest_query,
            max_seqlen_k=longest_sequence,
            **fixed,
        )

    return metadata

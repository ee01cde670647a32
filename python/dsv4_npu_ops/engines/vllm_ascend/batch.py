"""What all builders of a step have in common, found once a step: its decodes and its prefills."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Unexpected
from dsv4_npu_ops.engines.vllm_ascend import cann
from dsv4_npu_ops.engines.vllm_ascend.compressor import RESULTS
from dsv4_npu_ops.engines.vllm_ascend.rope import RopeRows
from dsv4_npu_ops.engines.vllm_ascend.step import Launches

_DSA = "vllm_ascend.attention.dsa_v1"


@dataclass(eq=False, slots=True)
class Size:
    """What steps of one size over the same buffers have in common; of a step with prefills, what it has alone.

    Attributes:
        launches: fill start positions, slots and RoPE rows.
        first, last: offsets of the rows' tokens and of those behind them, on the host.
        is_plain: the model runner's step, of decodes without padding, whose positions are the engine's.
        fields: of a step's metadata.
        decode: of the metadata of its decodes.
        own: what builders add to their decodes, by compress ratio and block table.
    """

    launches: list[Callable[[], object]]
    first: Tensor
    last: Tensor
    is_plain: bool
    fields: dict[str, Any]
    decode: dict[str, Any]
    own: dict[Any, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Part:
    """The decodes or the prefills of a step.

    Attributes:
        first_row, rows, first_token, tokens: of the batch.
        queries: for CANN's ops.
        fields: what their metadata have in every builder; of decodes, what is not common to steps of their size.
        attention: what CANN's ops gave, by compress ratio; 0 is the indexer's.
    """

    first_row: int
    rows: int
    first_token: int
    tokens: int
    queries: cann.Queries
    fields: dict[str, Any]
    attention: dict[int, Tensor] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Batch:
    """What all builders of a step have in common.

    Attributes:
        made: metadata by compress ratio and block table, which are the same for builders of one KV-cache group.
        fields: of the step's metadata.
    """

    size: Size
    fields: dict[str, Any]
    decode: Part | None
    prefill: Part | None
    made: dict[Any, Any] = field(default_factory=dict)


def _host_lengths(common: Any) -> Tensor:
    for lengths in (common._seq_lens_cpu, common.seq_lens_cpu):
        if lengths is not None:
            return lengths  # type: ignore[no-any-return]
    return common.seq_lens.cpu()  # type: ignore[no-any-return]


def describe(self: Any, common: Any, live: int | None, launches: Launches, is_runners: bool = False) -> Batch:
    """A step by the first of its builders, which makes its launch.

    Args:
        live: rows that are requests; None: all.
        is_runners: the model runner's own step. Tokens of its requests stand where start positions and offsets say, so
            that the launch may gather their RoPE rows; and it has found their longest query and sequence.
    """
    if self.model_config.hf_config.model_type != "deepseek_v4":
        raise Unexpected("another model than DeepSeek-V4")
    decodes, prefills, decode_tokens, prefill_tokens = sys.modules[_DSA].split_decodes_and_prefills(
        common, decode_threshold=self.decode_threshold
    )
    rows, tokens = common.num_reqs, common.num_actual_tokens
    if decodes + prefills != rows or decode_tokens + prefill_tokens != tokens:
        raise Unexpected("rows that are neither decodes nor prefills")
    live = rows if live is None else live
    offsets, positions, key = common.query_start_loc_cpu, common.positions, None
    # Positions of another type are cast in each step, which no view is.
    if not prefills and positions.dtype == torch.int64:
        key = (
            *(rows, tokens, common.num_input_tokens, live, positions.data_ptr(), offsets.data_ptr()),
            *(common.query_start_loc.data_ptr(), common.seq_lens.data_ptr(), self.start_pos_decode.data_ptr()),
        )
    size = None if key is None else launches.sizes.get(key)
    if size is None:
        size = _size(self, common, decodes, decode_tokens, prefills, live, launches, is_runners)
        if key is not None:
            launches.sizes.keep(key, size)
    for call in size.launches:
        call()
    widths = size.last - size.first
    fields = size.fields | {
        "query_lens": widths,
        "attn_state": common.attn_state,
        "query_start_loc": common.query_start_loc,
    }
    lengths = _host_lengths(common)
    decode = prefill = None
    if decodes:
        host = (lengths if lengths.shape[0] == decodes else lengths[:decodes]).tolist()
        if size.is_plain:
            longest = common.max_query_len, common.max_seq_len
        else:
            longest = max((widths[:decodes] if prefills else widths).tolist()), max(host)
        decode = _decodes(offsets, size.decode, decode_tokens, host, *longest)
    if prefills:
        prefill = _prefills(self, common, fields, lengths, decodes, max(min(live - decodes, prefills), 0))
    return Batch(size, fields, decode, prefill)


def _size(
    self: Any,
    common: Any,
    decodes: int,
    decode_tokens: int,
    prefills: int,
    live: int,
    launches: Launches,
    is_runners: bool,
) -> Size:
    rows, tokens, entries = common.num_reqs, common.num_actual_tokens, common.num_input_tokens
    positions = common.positions[:entries].long()
    rope = RopeRows.at(positions, not prefills)
    own_rope = RopeRows.at(positions[:decode_tokens], True) if decodes and prefills else rope
    (cos, sin), own = rope.proxies, own_rope.proxies
    is_plain = is_runners and not prefills and live == rows and tokens == entries
    is_one_launch = is_plain and len(rope.tables) <= 2
    step = common.query_start_loc, common.seq_lens, entries, self.start_pos_decode, live, rows
    calls = launches.bind(*step, rope.tables if is_one_launch else ())
    if not is_one_launch:
        calls += rope.gathers()
    if own_rope is not rope:
        calls += own_rope.gathers()
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
        **dict.fromkeys(("query_lens", "attn_state", "query_start_loc", "decode", "prefill", "hadamard")),
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
    offsets = common.query_start_loc_cpu
    return Size(calls, offsets[:rows], offsets[1 : rows + 1], is_plain, fields, decode)


def _decodes(
    offsets: Tensor, views: dict[str, Any], tokens: int, host: list[int], longest_query: int, longest: int
) -> Part:
    rows = len(host)
    fields = {
        "seq_lens_list": host,
        "max_seq_lens": longest,
        "max_seqlen_kv": longest,
        "max_seqlen_q": longest_query,
        "query_start_loc_cpu": offsets if offsets.shape[0] == rows + 1 else offsets[: rows + 1],
        RESULTS: {},
    }
    queries = cann.Queries(views["query_start_loc"], views["seq_lens"], longest_query, longest)
    return Part(0, rows, 0, tokens, queries, fields)


def _prefills(self: Any, common: Any, step: dict[str, Any], lengths: Tensor, first: int, live: int) -> Part:
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
        RESULTS: {},
    }
    return Part(first, rows, first_token, tokens - first_token, queries, fields)

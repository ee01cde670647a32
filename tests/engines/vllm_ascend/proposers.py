"""A drafter of vLLM-Ascend's over a world's block tables."""

from __future__ import annotations

import copy
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from engines.vllm_ascend.loading import CpuGpuBuffer, CUDAGraphMode
from engines.vllm_ascend.world import AttentionGroup, State, World, va

EAGER, FULL = CUDAGraphMode.NONE, CUDAGraphMode.FULL


def proposer_of(world: World) -> Any:
    """The drafter with the attributes that bookkeeping reads."""
    limits = world.limits
    self = va.proposer.AscendSpecDecodeBaseProposer.__new__(va.proposer.AscendSpecDecodeBaseProposer)
    spec = SimpleNamespace(block_size=128)
    builder = world.builder(spec)
    room = limits.tokens + limits.rows * limits.drafts
    self.__dict__.update(
        runner=world.runner,
        device=torch.device("cpu"),
        method="mtp",
        use_compress=True,
        uses_mrope=False,
        has_gdn=False,
        pcp_size=1,
        dcp_size=1,
        block_size=128,
        max_model_len=limits.length,
        num_speculative_tokens=limits.drafts,
        vllm_config=world.config,
        draft_attn_groups=[AttentionGroup(builder, spec, ["mtp.0"])],
        arange=torch.arange(limits.tokens + 1, dtype=torch.int32),
        token_arange_np=np.arange(limits.tokens + 1, dtype=np.int32),
        positions=torch.zeros(limits.tokens, dtype=torch.int32),
        slot_mapping_group=[torch.zeros(room, dtype=torch.int32) for _ in range(limits.drafts)],
        seq_lens_group=[torch.zeros(room, dtype=torch.int32) for _ in range(limits.drafts)],
        query_start_loc_group=[torch.zeros(room, dtype=torch.int32) for _ in range(limits.drafts)],
        backup_next_token_ids=CpuGpuBuffer(limits.rows, dtype=torch.int32),
    )
    return self


def drafted_batch(draws: random.Random, world: World, *, near_the_end: bool = False) -> Any:
    """Metadata of a batch behind its first pass, and the positions of the last tokens that are kept."""
    limits, table = world.limits, world.tables[world.names.index("swa")].block_table.cpu
    rows = draws.randint(1, limits.rows)
    low = limits.length - limits.drafts - 2 if near_the_end else limits.drafts + 1
    lengths = [draws.randint(low, limits.length) for _ in range(rows)]
    rejected = [draws.randint(0, limits.drafts) for _ in range(rows)]
    seq_lens = torch.tensor(lengths, dtype=torch.int32)
    width = limits.drafts + 1
    offsets = torch.arange(0, rows * width + 1, width, dtype=torch.int32)
    common = va.utils.AscendCommonAttentionMetadata(
        query_start_loc=offsets,
        query_start_loc_cpu=offsets.clone(),
        seq_lens=seq_lens,
        seq_lens_cpu=seq_lens.clone(),
        _seq_lens_cpu=seq_lens.clone(),
        num_computed_tokens_cpu=seq_lens - width,
        num_reqs=rows,
        num_actual_tokens=rows * width,
        num_input_tokens=rows * width,
        max_query_len=width,
        max_seq_len=0,
        block_table_tensor=table[:rows].clone(),
        slot_mapping=torch.zeros(limits.tokens, dtype=torch.int32),
        positions=torch.zeros(limits.tokens, dtype=torch.int64),
        attn_state=State.SpecDecoding,
    )
    kept = torch.tensor([max(0, n - 1 - r) for n, r in zip(lengths, rejected, strict=True)], dtype=torch.int32)
    return common, kept


def run_stack(self: Any, common: Any, kept: torch.Tensor, entries: int, mode: Any) -> list[Any]:
    """All steps as the drafter asks for them."""
    common, positions, metadata, rows = copy.copy(common), kept.clone(), None, common.num_reqs
    group, steps = self.draft_attn_groups[0], []
    for index in range(1, self.num_speculative_tokens):
        common, metadata = self.attn_update_stack_num_spec_norm(
            index, metadata, common, rows, entries, positions, mode, attn_group=group
        )
        steps.append(metadata)
    return steps

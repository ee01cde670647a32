"""A drafter of vLLM-Ascend's over a world's block tables."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from dsv4_npu_ops.engines.vllm_ascend import samples
from engines.vllm_ascend.loading import CpuGpuBuffer, CUDAGraphMode
from engines.vllm_ascend.world import AttentionGroup, State, World, switch, va

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


def drafted_batch(draws: random.Random, world: World, *, near_the_end: bool = False, rows: int | None = None) -> Any:
    """Metadata of a batch behind its first pass, and the positions of the last tokens that are kept."""
    limits, table = world.limits, world.tables[world.names.index("swa")].block_table.cpu
    rows = rows or draws.randint(1, limits.rows)
    low = limits.length - limits.drafts - 2 if near_the_end else limits.drafts + 1
    lengths = [draws.randint(low, limits.length + 2 * near_the_end) for _ in range(rows)]
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


def pad(self: Any, common: Any, requests: int) -> None:
    """What the drafter does to a batch that a captured graph of so many requests will run."""
    common.num_reqs = requests
    for name in ("block_table_tensor", "seq_lens", "seq_lens_cpu", "num_computed_tokens_cpu"):
        setattr(common, name, self._adjust_tensor(getattr(common, name), requests))
    common._seq_lens_cpu = common.seq_lens_cpu.clone()


def run_stack(self: Any, common: Any, kept: torch.Tensor, entries: int, mode: Any) -> list[Any]:
    """All steps as the drafter asks for them."""
    positions, metadata, rows = kept.clone(), None, kept.shape[0]
    group, steps = self.draft_attn_groups[0], []
    for index in range(1, self.num_speculative_tokens):
        common, metadata = self.attn_update_stack_num_spec_norm(
            index, metadata, common, rows, entries, positions, mode, attn_group=group
        )
        steps.append(metadata)
    return steps


class Request:
    """A request that knows its tokens."""

    def __init__(self, token: int) -> None:
        self._token = token

    def get_token_id(self, index: int) -> int:
        return self._token + index


@dataclass
class Round:
    """Samples of a mixed step: verifies, decodes without drafts, and chunks of which some are discarded."""

    common: Any
    samples: torch.Tensor
    speculative: Any
    requests: dict[str, Request]
    batch: Any
    discarded: torch.Tensor

    @classmethod
    def draw(cls, draws: random.Random, world: World, rows: int | None = None, verifies: bool = False) -> Round:
        limits = world.limits
        rows, n = rows or draws.randint(1, limits.rows), limits.drafts + 1
        drafts = [draws.choice((0, limits.drafts, draws.randint(0, limits.drafts))) for _ in range(rows)]
        drafts = [limits.drafts] * rows if verifies else drafts
        widths = [d + 1 if d else draws.choice((1, draws.randint(1, 40))) for d in drafts]
        discarded = [i for i in range(rows) if not drafts[i] and draws.random() < 0.3]
        counts = [0 if i in discarded else draws.randint(1, drafts[i] + 1) for i in range(rows)]
        samples = torch.full((rows, n), -1, dtype=torch.int32)
        for i, count in enumerate(counts):
            samples[i, : count or 1] = torch.randint(0, 1000, (count or 1,), dtype=torch.int32)
        offsets = torch.tensor([0, *np.cumsum(widths)], dtype=torch.int32)
        seq_lens = torch.tensor([w + draws.choice((0, draws.randint(1, 500))) for w in widths], dtype=torch.int32)
        common = va.utils.AscendCommonAttentionMetadata(
            query_start_loc=offsets,
            query_start_loc_cpu=offsets.clone(),
            seq_lens=seq_lens,
            _seq_lens_cpu=seq_lens.clone(),
            num_reqs=rows,
            num_actual_tokens=sum(widths),
            num_input_tokens=sum(widths) + 3,
            max_query_len=max(widths),
            max_seq_len=int(seq_lens.max()),
            block_table_tensor=torch.zeros(rows, 1, dtype=torch.int32),
            slot_mapping=torch.zeros(1, dtype=torch.int32),
        )
        speculative = SimpleNamespace(
            num_draft_tokens=drafts, cu_num_draft_tokens=torch.tensor(np.cumsum(drafts), dtype=torch.int32)
        )
        batch = SimpleNamespace(
            num_reqs=rows,
            req_ids=[f"r{i}" for i in range(rows)],
            num_tokens_no_spec=np.array([draws.randint(1, 90) for _ in range(rows)]),
            vocab_size=1000,
        )
        requests = {name: Request(draws.randint(0, 900)) for name in batch.req_ids}
        return cls(common, samples, speculative, requests, batch, torch.tensor(discarded, dtype=torch.int64))

    def run(self, drafter: Any) -> tuple[Any, ...]:
        """The calls that the runner makes of its drafter."""
        runner = drafter.runner
        runner.drafter = drafter
        results: list[Any] = []

        def propose(drafter: Any) -> None:
            tokens, counts = drafter.prepare_next_token_ids_padded(
                self.samples.clone(), self.requests, self.batch, self.discarded, len(self.discarded)
            )
            results.extend((tokens, counts, *drafter.prepare_inputs_padded(self.common, self.speculative, counts)))

        with as_runner(propose):
            runner.propose_draft_token_ids(None, None, None, self.speculative, self.common, None, 0, None)
        return tuple(results)


@contextmanager
def as_runner(propose: Any) -> Iterator[None]:
    """In the place of what the runner does with a round: the calls of its drafter that are looked at."""
    kind, hook = va.runner.NPUModelRunner, next(h for h in samples.HOOKS if h.name.endswith("propose_draft_token_ids"))
    replaced = kind.propose_draft_token_ids
    kind.propose_draft_token_ids = switch.switched(hook)(lambda self, *args: propose(self.drafter))
    try:
        yield
    finally:
        kind.propose_draft_token_ids = replaced

"""One forward over a ragged batch, and where its layers read and write the pools.

A step flattens the new tokens of all rows into T tokens. Every index below follows from the step's metadata
(docs/spec.md, a step) by tensor arithmetic over rows; layers of the same kind share it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from dsv4_npu_ops import CompressMetadata

Rotary = tuple[Tensor, Tensor]
"""cos and sin rows ``[rows, D]`` in float32, interleaved (docs/spec.md, RoPE)."""


@dataclass(frozen=True)
class Keys:
    """The keys that one kind of pool gives to every row, padded to K per row.

    Attributes:
        slots: ``[B, K]`` int64, 0 where invalid.
        valid: ``[B, K]`` bool, the row has such a key.
        visible: ``[B, Q, K]`` bool, this query of the row may see it.
    """

    slots: Tensor
    valid: Tensor
    visible: Tensor

    def gather(self, pool: Tensor) -> Tensor:
        """Rows of ``pool`` ``[slots, D]`` as ``[B, K, D]``, zero where invalid, whatever the dummy row holds."""
        return pool[self.slots].masked_fill(~self.valid.unsqueeze(-1), 0)


@dataclass(frozen=True)
class Groups:
    """The G groups of one ratio that this step completes, and the W raw tokens that each of them pools.

    Attributes:
        out_slots: ``[G]`` int64, where the compressed entry is stored; 0 for dummy groups.
        rotary: rows at the groups' first positions.
        token_index: ``[G, W]`` int64 into the step's tokens, for inputs that are part of this step.
        state_slots: ``[G, W]`` int64 into the state pool, for inputs from earlier steps.
        in_step: ``[G, W]`` bool, which of the two holds.
        absent: ``[G, W]`` bool, the group before group 0.
    """

    out_slots: Tensor
    rotary: Rotary
    token_index: Tensor
    state_slots: Tensor
    in_step: Tensor
    absent: Tensor


@dataclass
class Step:
    """Tokens and bookkeeping of one forward.

    Attributes:
        token_ids: ``[T]`` int64.
        metadata: the step's compress metadata of B rows.
        page_sizes: slots of a page, by pool; window: of the layout, in tokens.
        max_width: most tokens that a row brings (Q); max_kv_len: longest row after this step. Both from the host.
        swa_slots: ``[T]``, where each token's sliding-window KV goes; 0 for padding.
        rotary: by rope base, ``main`` (ratio 0) and ``compress``, rows at the tokens' positions.
        state_slots: by ratio, ``[T]``, where each token's compressor state goes; 0 where none is kept.
        group_rotary: by ratio, rows at the first positions of the completed groups.
        group_counts: by ratio, completed groups in this step, from the host, or more: dummies follow. A ratio that is
            not listed is not compressed: MTP passes list none.
    """

    token_ids: Tensor
    metadata: CompressMetadata
    page_sizes: Mapping[str, int]
    window: int
    max_width: int
    max_kv_len: int
    swa_slots: Tensor
    rotary: dict[str, Rotary]
    state_slots: dict[int, Tensor] = field(default_factory=dict)
    group_rotary: dict[int, Rotary] = field(default_factory=dict)
    group_counts: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.swa_slots = self.swa_slots.long()
        self.state_slots = {ratio: slots.long() for ratio, slots in self.state_slots.items()}
        self._compressed_keys: dict[int, Keys] = {}
        self._groups: dict[int, Groups] = {}

    @cached_property
    def start_pos(self) -> Tensor:
        """``[B]`` int64 tokens in cache before the step."""
        return self.metadata.start_pos.long()

    @cached_property
    def final_len(self) -> Tensor:
        """``[B]`` int64 tokens in cache after the step, 0 for padding rows."""
        return self.start_pos + self.metadata.seqused

    @cached_property
    def token_offsets(self) -> Tensor:
        """``[B + 1]`` int64, row i's tokens are ``[token_offsets[i], token_offsets[i + 1])``."""
        return self.metadata.cu_seqlens.long()

    @cached_property
    def row_of_token(self) -> Tensor:
        """``[T]`` int64, the batch row of each token."""
        tokens = torch.arange(self.swa_slots.shape[0], device=self.swa_slots.device)
        return torch.searchsorted(self.token_offsets[1:].contiguous(), tokens, right=True)

    @cached_property
    def index_in_row(self) -> Tensor:
        """``[T]`` int64, how many tokens of the same row come before."""
        tokens = torch.arange(self.swa_slots.shape[0], device=self.swa_slots.device)
        return tokens - self.token_offsets[self.row_of_token]

    @cached_property
    def last_token(self) -> Tensor:
        """``[B]`` int64, the last token of each row that brings any."""
        return (self.token_offsets[1:] - 1).clamp(min=0)

    def pad(self, values: Tensor) -> Tensor:
        """``[T, ...]`` to ``[B, Q, ...]``; what lies behind a row's own tokens is arbitrary."""
        return values[self._pad_index]

    def unpad(self, values: Tensor) -> Tensor:
        """``[B, Q, ...]`` back to ``[T, ...]``."""
        return values[self.row_of_token, self.index_in_row]

    @cached_property
    def _pad_index(self) -> Tensor:
        offsets = torch.arange(self.max_width, device=self.token_offsets.device)
        return (self.token_offsets[:-1, None] + offsets).clamp(max=self.swa_slots.shape[0] - 1)

    @cached_property
    def _query_positions(self) -> Tensor:
        offsets = torch.arange(self.max_width, device=self.start_pos.device)
        return self.start_pos[:, None] + offsets

    def _slots(self, pool: str, page_table: Tensor, units: Tensor, valid: Tensor) -> Tensor:
        """Slots of ``units`` ``[N, K]`` through page tables ``[N, W]`` of ``pool``; 0 where not valid."""
        page_size = self.page_sizes[pool]
        pages = page_table.long().gather(1, (units // page_size).clamp(0, page_table.shape[1] - 1))
        return torch.where(valid, pages * page_size + units % page_size, 0)

    @cached_property
    def window_keys(self) -> Keys:
        """The sliding window: query position p sees ``(p - window, p]``."""
        first = (self.start_pos - self.window + 1).clamp(min=0)
        offsets = torch.arange(self.window - 1 + self.max_width, device=first.device)
        units = first[:, None] + offsets
        valid = units < self.final_len[:, None]
        distance = self._query_positions[:, :, None] - units[:, None, :]
        visible = valid[:, None, :] & (distance >= 0) & (distance < self.window)
        return Keys(self._slots("swa", self.metadata.swa_page_table, units, valid), valid, visible)

    def compressed_keys(self, ratio: int) -> Keys:
        """The completed groups: query position p sees groups ``g < (p + 1) // ratio``."""
        if ratio not in self._compressed_keys:
            pool = f"c{ratio}"
            table = self.metadata.c4_page_table if ratio == 4 else self.metadata.c128_page_table
            groups = torch.arange(self.max_kv_len // ratio, device=table.device)
            units = groups.expand(table.shape[0], -1)
            valid = units < (self.final_len // ratio)[:, None]
            ready = (self._query_positions + 1) // ratio
            visible = valid[:, None, :] & (groups < ready[:, :, None])
            self._compressed_keys[ratio] = Keys(self._slots(pool, table, units, valid), valid, visible)
        return self._compressed_keys[ratio]

    def groups(self, ratio: int) -> Groups:
        """The groups of ``ratio`` that this step completes; its ``group_counts`` must not be 0."""
        if ratio not in self._groups:
            self._groups[ratio] = self._plan_groups(ratio, self.group_counts[ratio])
        return self._groups[ratio]

    def _plan_groups(self, ratio: int, count: int) -> Groups:
        meta = self.metadata
        first, locations, table = (
            (meta.positions_c4, meta.c4_loc, meta.c4_state_page_table)
            if ratio == 4
            else (meta.positions_c128, meta.c128_loc, meta.c128_state_page_table)
        )
        completed_until = (self.final_len // ratio - self.start_pos // ratio).cumsum(0)
        order = torch.arange(count, device=first.device)
        row = torch.searchsorted(completed_until, order, right=True).clamp(max=len(completed_until) - 1)
        # A dummy group stores something in the dummy slot.
        real = (order < completed_until[-1])[:, None]
        # A ratio-4 entry also pools the group before its own.
        offsets = torch.arange(-ratio if ratio == 4 else 0, ratio, device=first.device)
        raw = first[:count, None] + offsets
        start = self.start_pos[row, None]
        in_step, absent = real & (raw >= start), raw < 0
        token_index = torch.where(in_step, self.token_offsets[row, None] + raw - start, 0)
        state_slots = self._slots(f"c{ratio}_state", table[row], raw.clamp(min=0), real & ~in_step & ~absent)
        rotary = self.group_rotary[ratio]
        return Groups(
            locations[:count].long(), (rotary[0][:count], rotary[1][:count]), token_index, state_slots, in_step, absent
        )

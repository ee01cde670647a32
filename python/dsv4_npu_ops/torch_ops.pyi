"""Signatures of ``torch.ops.dsv4_npu_ops``, for type checkers only; written by ``make stubs``.

    if TYPE_CHECKING:
        from dsv4_npu_ops.torch_ops import Ops
    ops: "Ops" = torch.ops.dsv4_npu_ops

docs/spec.md says what each op does. Tensors that a call writes are named in the op's README.
"""

from collections.abc import Sequence
from typing import Protocol, overload

import torch
from torch import SymInt, Tensor

class AdvanceStepDefault(Protocol):
    def __call__(
        self,
        tables: Sequence[Tensor],
        addressing: Sequence[int],
        req_pool_indices: Tensor | None,
        seq_lens: Tensor,
        accepted_lens: Tensor | None,
        token_ids: Tensor,
        cu_seqlens: Tensor | None,
        num_draft_tokens: Tensor | None,
        backup_tokens: Tensor | None,
        hidden_states: Tensor | None,
        width: int,
        max_context_len: int,
        next_seq_lens: Tensor | None,
        extend_lens: Tensor | None,
        next_token_ids: Tensor | None,
        positions: Tensor | None,
        out_full_loc: Tensor | None,
        out_swa_loc: Tensor | None,
        sampled_index: Tensor | None,
        next_hidden_states: Tensor | None = None,
        valid_counts: Tensor | None = None,
        rejected_lens: Tensor | None = None,
        lengths_are_final: bool = False,
        dummy_slots: Sequence[int] = [0, 0],
    ) -> None: ...

class AdvanceStepSamples(Protocol):
    def __call__(
        self,
        seq_lens: Tensor,
        token_ids: Tensor,
        cu_seqlens: Tensor | None,
        num_draft_tokens: Tensor | None,
        backup_tokens: Tensor | None,
        max_context_len: int,
        lengths_are_final: bool = False,
    ) -> list[Tensor]: ...

class AdvanceStep(Protocol):
    @property
    def default(self) -> AdvanceStepDefault: ...
    @property
    def samples(self) -> AdvanceStepSamples: ...
    @overload
    def __call__(
        self,
        tables: Sequence[Tensor],
        addressing: Sequence[int],
        req_pool_indices: Tensor | None,
        seq_lens: Tensor,
        accepted_lens: Tensor | None,
        token_ids: Tensor,
        cu_seqlens: Tensor | None,
        num_draft_tokens: Tensor | None,
        backup_tokens: Tensor | None,
        hidden_states: Tensor | None,
        width: int,
        max_context_len: int,
        next_seq_lens: Tensor | None,
        extend_lens: Tensor | None,
        next_token_ids: Tensor | None,
        positions: Tensor | None,
        out_full_loc: Tensor | None,
        out_swa_loc: Tensor | None,
        sampled_index: Tensor | None,
        next_hidden_states: Tensor | None = None,
        valid_counts: Tensor | None = None,
        rejected_lens: Tensor | None = None,
        lengths_are_final: bool = False,
        dummy_slots: Sequence[int] = [0, 0],
    ) -> None: ...
    @overload
    def __call__(
        self,
        seq_lens: Tensor,
        token_ids: Tensor,
        cu_seqlens: Tensor | None,
        num_draft_tokens: Tensor | None,
        backup_tokens: Tensor | None,
        max_context_len: int,
        lengths_are_final: bool = False,
    ) -> list[Tensor]: ...

class ApplyRotaryDefault(Protocol):
    def __call__(
        self,
        q: Tensor | None,
        kv: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        *,
        inverse: bool = False,
    ) -> None: ...

class ApplyRotary(Protocol):
    @property
    def default(self) -> ApplyRotaryDefault: ...
    def __call__(
        self,
        q: Tensor | None,
        kv: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        *,
        inverse: bool = False,
    ) -> None: ...

class C4SlotsFromFullDefault(Protocol):
    def __call__(
        self,
        full_loc: Tensor,
        num_groups: int | SymInt,
    ) -> Tensor: ...

class C4SlotsFromFullOut(Protocol):
    def __call__(
        self,
        full_loc: Tensor,
        *,
        c4_loc: Tensor,
    ) -> None: ...

class C4SlotsFromFull(Protocol):
    @property
    def default(self) -> C4SlotsFromFullDefault: ...
    @property
    def out(self) -> C4SlotsFromFullOut: ...
    @overload
    def __call__(
        self,
        full_loc: Tensor,
        num_groups: int | SymInt,
    ) -> Tensor: ...
    @overload
    def __call__(
        self,
        full_loc: Tensor,
        *,
        c4_loc: Tensor,
    ) -> None: ...

class CompressorMetadataDefault(Protocol):
    def __call__(
        self,
        rope_cos: Tensor | None,
        rope_sin: Tensor | None,
        cu_seqlens: Tensor,
        start_pos: Tensor,
        req_pool_indices: Tensor | None,
        kv_block_table: Tensor,
        kv_block_size: int,
        slot_mapping_format: int,
        compress_ratio: int,
        num_rows: int,
        num_reqs: int,
        cos: Tensor | None,
        sin: Tensor | None,
        slot_mapping: Tensor | None,
        positions: Tensor | None,
    ) -> None: ...

class CompressorMetadata(Protocol):
    @property
    def default(self) -> CompressorMetadataDefault: ...
    def __call__(
        self,
        rope_cos: Tensor | None,
        rope_sin: Tensor | None,
        cu_seqlens: Tensor,
        start_pos: Tensor,
        req_pool_indices: Tensor | None,
        kv_block_table: Tensor,
        kv_block_size: int,
        slot_mapping_format: int,
        compress_ratio: int,
        num_rows: int,
        num_reqs: int,
        cos: Tensor | None,
        sin: Tensor | None,
        slot_mapping: Tensor | None,
        positions: Tensor | None,
    ) -> None: ...

class DraftStepsDefault(Protocol):
    def __call__(
        self,
        tables: Sequence[Tensor],
        addressing: Sequence[int],
        req_pool_indices: Tensor | None,
        reservation: Tensor | None,
        seq_lens: Tensor,
        rope_cos: Tensor,
        rope_sin: Tensor,
        pool: int,
        topk: int,
        num_steps: int,
        max_context_len: int,
        dummy_slot: int,
        slots: Tensor,
        positions: Tensor,
        kv_lens: Tensor,
        cos: Tensor,
        sin: Tensor,
    ) -> None: ...

class DraftStepsApart(Protocol):
    def __call__(
        self,
        block_table: Tensor,
        last_positions: Tensor,
        seq_lens: Tensor,
        rope: Sequence[Tensor],
        block_size: int,
        max_context_len: int,
        dummy_slot: int,
        slots: Sequence[Tensor],
        kv_lens: Sequence[Tensor],
        cu_seqlens: Sequence[Tensor],
        rope_rows: Sequence[Tensor],
    ) -> None: ...

class DraftSteps(Protocol):
    @property
    def default(self) -> DraftStepsDefault: ...
    @property
    def apart(self) -> DraftStepsApart: ...
    @overload
    def __call__(
        self,
        tables: Sequence[Tensor],
        addressing: Sequence[int],
        req_pool_indices: Tensor | None,
        reservation: Tensor | None,
        seq_lens: Tensor,
        rope_cos: Tensor,
        rope_sin: Tensor,
        pool: int,
        topk: int,
        num_steps: int,
        max_context_len: int,
        dummy_slot: int,
        slots: Tensor,
        positions: Tensor,
        kv_lens: Tensor,
        cos: Tensor,
        sin: Tensor,
    ) -> None: ...
    @overload
    def __call__(
        self,
        block_table: Tensor,
        last_positions: Tensor,
        seq_lens: Tensor,
        rope: Sequence[Tensor],
        block_size: int,
        max_context_len: int,
        dummy_slot: int,
        slots: Sequence[Tensor],
        kv_lens: Sequence[Tensor],
        cu_seqlens: Sequence[Tensor],
        rope_rows: Sequence[Tensor],
    ) -> None: ...

class EmptyTensorsDefault(Protocol):
    def __call__(
        self,
        numbers: Sequence[int],
        device: torch.device,
    ) -> list[Tensor]: ...

class EmptyTensors(Protocol):
    @property
    def default(self) -> EmptyTensorsDefault: ...
    def __call__(
        self,
        numbers: Sequence[int],
        device: torch.device,
    ) -> list[Tensor]: ...

class ExtendFromListsDefault(Protocol):
    def __call__(
        self,
        req_pool_indices: Tensor,
        prefix_lens: Tensor | None,
        seq_lens: Tensor,
        last_loc: Tensor,
        full_pages: Tensor,
        swa_pages: Tensor,
        c128_pages: Tensor,
        full_to_swa: Tensor,
        c128_table: Tensor,
        c128_owners: Tensor,
        num_tokens: int,
        num_c4: int,
        num_c128: int,
        num_c128_pages: int,
        page_size: int,
        c128_page_size: int,
        swa_tail: int | None = None,
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
    ]: ...

class ExtendFromListsNeeds(Protocol):
    def __call__(
        self,
        prefix_lens: Tensor | None,
        seq_lens: Tensor,
        page_size: int,
        c128_page_size: int,
        swa_tail: int | None = None,
    ) -> tuple[
        int | SymInt,
        int | SymInt,
        int | SymInt,
        int | SymInt,
        int | SymInt,
        int | SymInt,
        Tensor,
    ]: ...

class ExtendFromLists(Protocol):
    @property
    def default(self) -> ExtendFromListsDefault: ...
    @property
    def needs(self) -> ExtendFromListsNeeds: ...
    @overload
    def __call__(
        self,
        req_pool_indices: Tensor,
        prefix_lens: Tensor | None,
        seq_lens: Tensor,
        last_loc: Tensor,
        full_pages: Tensor,
        swa_pages: Tensor,
        c128_pages: Tensor,
        full_to_swa: Tensor,
        c128_table: Tensor,
        c128_owners: Tensor,
        num_tokens: int,
        num_c4: int,
        num_c128: int,
        num_c128_pages: int,
        page_size: int,
        c128_page_size: int,
        swa_tail: int | None = None,
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
    ]: ...
    @overload
    def __call__(
        self,
        prefix_lens: Tensor | None,
        seq_lens: Tensor,
        page_size: int,
        c128_page_size: int,
        swa_tail: int | None = None,
    ) -> tuple[
        int | SymInt,
        int | SymInt,
        int | SymInt,
        int | SymInt,
        int | SymInt,
        int | SymInt,
        Tensor,
    ]: ...

class MapFullToSwaDefault(Protocol):
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        segments: Tensor,
        full_to_swa: Tensor,
        page_size: int,
        num_items: int = 0,
    ) -> None: ...

class MapFullToSwa(Protocol):
    @property
    def default(self) -> MapFullToSwaDefault: ...
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        segments: Tensor,
        full_to_swa: Tensor,
        page_size: int,
        num_items: int = 0,
    ) -> None: ...

class PayloadSpansDefault(Protocol):
    def __call__(
        self,
        seq_len: int,
        prefix_len: int,
        sliding_window: int,
    ) -> list[int]: ...

class PayloadSpans(Protocol):
    @property
    def default(self) -> PayloadSpansDefault: ...
    def __call__(
        self,
        seq_len: int,
        prefix_len: int,
        sliding_window: int,
    ) -> list[int]: ...

class ReleasePagesDefault(Protocol):
    def __call__(
        self,
        tables: Sequence[Tensor],
        free_pages: Tensor,
        segments: Tensor,
        num_pages: Sequence[int],
        page_sizes: Sequence[int],
        num_items: int = 0,
    ) -> None: ...

class ReleasePages(Protocol):
    @property
    def default(self) -> ReleasePagesDefault: ...
    def __call__(
        self,
        tables: Sequence[Tensor],
        free_pages: Tensor,
        segments: Tensor,
        num_pages: Sequence[int],
        page_sizes: Sequence[int],
        num_items: int = 0,
    ) -> None: ...

class ReserveExtendDefault(Protocol):
    def __call__(
        self,
        tables: Sequence[Tensor],
        free_pages: Tensor,
        segments: Tensor,
        num_pages: Sequence[int],
        num_slots: Sequence[int],
        page_sizes: Sequence[int],
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
    ]: ...

class ReserveExtend(Protocol):
    @property
    def default(self) -> ReserveExtendDefault: ...
    def __call__(
        self,
        tables: Sequence[Tensor],
        free_pages: Tensor,
        segments: Tensor,
        num_pages: Sequence[int],
        num_slots: Sequence[int],
        page_sizes: Sequence[int],
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
    ]: ...

class RopeGatherDefault(Protocol):
    def __call__(
        self,
        cos: Tensor,
        sin: Tensor,
        positions: Tensor,
        *,
        inverse: bool = False,
        dtype: torch.dtype | None = None,
    ) -> tuple[
        Tensor,
        Tensor,
    ]: ...

class RopeGatherOut(Protocol):
    def __call__(
        self,
        cos: Tensor,
        sin: Tensor,
        positions: Tensor,
        *,
        inverse: bool = False,
        cos_out: Tensor,
        sin_out: Tensor,
    ) -> None: ...

class RopeGather(Protocol):
    @property
    def default(self) -> RopeGatherDefault: ...
    @property
    def out(self) -> RopeGatherOut: ...
    @overload
    def __call__(
        self,
        cos: Tensor,
        sin: Tensor,
        positions: Tensor,
        *,
        inverse: bool = False,
        dtype: torch.dtype | None = None,
    ) -> tuple[
        Tensor,
        Tensor,
    ]: ...
    @overload
    def __call__(
        self,
        cos: Tensor,
        sin: Tensor,
        positions: Tensor,
        *,
        inverse: bool = False,
        cos_out: Tensor,
        sin_out: Tensor,
    ) -> None: ...

class RopeTablesDefault(Protocol):
    def __call__(
        self,
        freqs_cis: Tensor,
        *,
        dtype: torch.dtype,
    ) -> tuple[
        Tensor,
        Tensor,
    ]: ...

class RopeTablesOut(Protocol):
    def __call__(
        self,
        freqs_cis: Tensor,
        *,
        cos_out: Tensor,
        sin_out: Tensor,
    ) -> None: ...

class RopeTables(Protocol):
    @property
    def default(self) -> RopeTablesDefault: ...
    @property
    def out(self) -> RopeTablesOut: ...
    @overload
    def __call__(
        self,
        freqs_cis: Tensor,
        *,
        dtype: torch.dtype,
    ) -> tuple[
        Tensor,
        Tensor,
    ]: ...
    @overload
    def __call__(
        self,
        freqs_cis: Tensor,
        *,
        cos_out: Tensor,
        sin_out: Tensor,
    ) -> None: ...

class SharePagesDefault(Protocol):
    def __call__(
        self,
        tables: Sequence[Tensor],
        free_pages: Tensor,
        segments: Tensor,
        num_pages: Sequence[int],
        num_copies: int,
        page_sizes: Sequence[int],
        num_items: int = 0,
    ) -> tuple[
        Tensor,
        Tensor,
    ]: ...

class SharePages(Protocol):
    @property
    def default(self) -> SharePagesDefault: ...
    def __call__(
        self,
        tables: Sequence[Tensor],
        free_pages: Tensor,
        segments: Tensor,
        num_pages: Sequence[int],
        num_copies: int,
        page_sizes: Sequence[int],
        num_items: int = 0,
    ) -> tuple[
        Tensor,
        Tensor,
    ]: ...

class StepDefault(Protocol):
    def __call__(
        self,
        tables: Sequence[Tensor],
        addressing: Sequence[int],
        req_pool_indices: Tensor | None,
        seq_lens: Tensor,
        operand: Tensor | None,
        rope_cos: Tensor | None,
        rope_sin: Tensor | None,
        form: int,
        width: int,
        window: int,
        max_context_len: int,
        out: Sequence[Tensor],
        fields: int,
        dummy_slots: Sequence[int] = [0, 0, 0, 0, 0, 0],
        dummy_pages: Sequence[int] = [-1, -1, -1, -1, 0, 0],
        window_block: int = 1,
        closes_cu_seqlens: bool = False,
        main_rope_cos: Tensor | None = None,
        main_rope_sin: Tensor | None = None,
        compress_rope_cos: Tensor | None = None,
        compress_rope_sin: Tensor | None = None,
    ) -> None: ...

class StepNew(Protocol):
    def __call__(
        self,
        tables: Sequence[Tensor],
        addressing: Sequence[int],
        req_pool_indices: Tensor | None,
        seq_lens: Tensor,
        operand: Tensor | None,
        rope_cos: Tensor | None,
        rope_sin: Tensor | None,
        form: int,
        width: int,
        window: int,
        max_context_len: int,
        buffers: Sequence[int],
        fields: int,
        dummy_slots: Sequence[int] = [0, 0, 0, 0, 0, 0],
        dummy_pages: Sequence[int] = [-1, -1, -1, -1, 0, 0],
        window_block: int = 1,
        closes_cu_seqlens: bool = False,
        main_rope_cos: Tensor | None = None,
        main_rope_sin: Tensor | None = None,
        compress_rope_cos: Tensor | None = None,
        compress_rope_sin: Tensor | None = None,
        host_seq_lens: Tensor | None = None,
        host_operand: Tensor | None = None,
    ) -> list[Tensor]: ...

class Step(Protocol):
    @property
    def default(self) -> StepDefault: ...
    @property
    def new(self) -> StepNew: ...
    @overload
    def __call__(
        self,
        tables: Sequence[Tensor],
        addressing: Sequence[int],
        req_pool_indices: Tensor | None,
        seq_lens: Tensor,
        operand: Tensor | None,
        rope_cos: Tensor | None,
        rope_sin: Tensor | None,
        form: int,
        width: int,
        window: int,
        max_context_len: int,
        out: Sequence[Tensor],
        fields: int,
        dummy_slots: Sequence[int] = [0, 0, 0, 0, 0, 0],
        dummy_pages: Sequence[int] = [-1, -1, -1, -1, 0, 0],
        window_block: int = 1,
        closes_cu_seqlens: bool = False,
        main_rope_cos: Tensor | None = None,
        main_rope_sin: Tensor | None = None,
        compress_rope_cos: Tensor | None = None,
        compress_rope_sin: Tensor | None = None,
    ) -> None: ...
    @overload
    def __call__(
        self,
        tables: Sequence[Tensor],
        addressing: Sequence[int],
        req_pool_indices: Tensor | None,
        seq_lens: Tensor,
        operand: Tensor | None,
        rope_cos: Tensor | None,
        rope_sin: Tensor | None,
        form: int,
        width: int,
        window: int,
        max_context_len: int,
        buffers: Sequence[int],
        fields: int,
        dummy_slots: Sequence[int] = [0, 0, 0, 0, 0, 0],
        dummy_pages: Sequence[int] = [-1, -1, -1, -1, 0, 0],
        window_block: int = 1,
        closes_cu_seqlens: bool = False,
        main_rope_cos: Tensor | None = None,
        main_rope_sin: Tensor | None = None,
        compress_rope_cos: Tensor | None = None,
        compress_rope_sin: Tensor | None = None,
        host_seq_lens: Tensor | None = None,
        host_operand: Tensor | None = None,
    ) -> list[Tensor]: ...

class StepSizesDefault(Protocol):
    def __call__(
        self,
        seq_lens: Tensor,
        operand: Tensor | None,
        form: int,
        width: int,
    ) -> tuple[
        int | SymInt,
        int | SymInt,
        int | SymInt,
        int | SymInt,
        int | SymInt,
        Tensor,
    ]: ...

class StepSizes(Protocol):
    @property
    def default(self) -> StepSizesDefault: ...
    def __call__(
        self,
        seq_lens: Tensor,
        operand: Tensor | None,
        form: int,
        width: int,
    ) -> tuple[
        int | SymInt,
        int | SymInt,
        int | SymInt,
        int | SymInt,
        int | SymInt,
        Tensor,
    ]: ...

class TokenSlotsDefault(Protocol):
    def __call__(
        self,
        cu_seqlens: Tensor,
        seq_lens: Tensor,
        page_tables: Sequence[Tensor],
        first_pages: Sequence[Tensor],
        first_pages_of: Sequence[int],
        page_sizes: Sequence[int],
        ratios: Sequence[int],
        lowest_pages: Sequence[int],
        num_reqs: int,
        slots: Sequence[Tensor],
    ) -> None: ...

class TokenSlots(Protocol):
    @property
    def default(self) -> TokenSlotsDefault: ...
    def __call__(
        self,
        cu_seqlens: Tensor,
        seq_lens: Tensor,
        page_tables: Sequence[Tensor],
        first_pages: Sequence[Tensor],
        first_pages_of: Sequence[int],
        page_sizes: Sequence[int],
        ratios: Sequence[int],
        lowest_pages: Sequence[int],
        num_reqs: int,
        slots: Sequence[Tensor],
    ) -> None: ...

class WriteReqTablesDefault(Protocol):
    def __call__(
        self,
        tables: Sequence[Tensor],
        addressing: Sequence[int],
        max_context_len: int,
        req_pool_indices: Tensor,
        starts: Tensor,
        ends: Tensor,
        loc: Sequence[Tensor],
        *,
        c4_state_starts: Tensor | None = None,
        c128_state_starts: Tensor | None = None,
    ) -> None: ...

class WriteReqTables(Protocol):
    @property
    def default(self) -> WriteReqTablesDefault: ...
    def __call__(
        self,
        tables: Sequence[Tensor],
        addressing: Sequence[int],
        max_context_len: int,
        req_pool_indices: Tensor,
        starts: Tensor,
        ends: Tensor,
        loc: Sequence[Tensor],
        *,
        c4_state_starts: Tensor | None = None,
        c128_state_starts: Tensor | None = None,
    ) -> None: ...

class Ops(Protocol):
    @property
    def advance_step(self) -> AdvanceStep: ...
    @property
    def apply_rotary(self) -> ApplyRotary: ...
    @property
    def c4_slots_from_full(self) -> C4SlotsFromFull: ...
    @property
    def compressor_metadata(self) -> CompressorMetadata: ...
    @property
    def draft_steps(self) -> DraftSteps: ...
    @property
    def empty_tensors(self) -> EmptyTensors: ...
    @property
    def extend_from_lists(self) -> ExtendFromLists: ...
    @property
    def map_full_to_swa(self) -> MapFullToSwa: ...
    @property
    def payload_spans(self) -> PayloadSpans: ...
    @property
    def release_pages(self) -> ReleasePages: ...
    @property
    def reserve_extend(self) -> ReserveExtend: ...
    @property
    def rope_gather(self) -> RopeGather: ...
    @property
    def rope_tables(self) -> RopeTables: ...
    @property
    def share_pages(self) -> SharePages: ...
    @property
    def step(self) -> Step: ...
    @property
    def step_sizes(self) -> StepSizes: ...
    @property
    def token_slots(self) -> TokenSlots: ...
    @property
    def write_req_tables(self) -> WriteReqTables: ...

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
        full_table: Tensor,
        swa_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        accepted_lens: Tensor,
        token_ids: Tensor,
        cu_seqlens: Tensor | None,
        hidden_states: Tensor | None,
        width: int,
        max_context_len: int,
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
    ]: ...

class AdvanceStepOut(Protocol):
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        accepted_lens: Tensor,
        token_ids: Tensor,
        cu_seqlens: Tensor | None,
        hidden_states: Tensor | None,
        width: int,
        max_context_len: int,
        *,
        next_seq_lens: Tensor,
        extend_lens: Tensor,
        next_token_ids: Tensor,
        positions: Tensor,
        out_full_loc: Tensor,
        out_swa_loc: Tensor,
        sampled_index: Tensor,
        next_hidden: Tensor | None = None,
    ) -> None: ...

class AdvanceStep(Protocol):
    @property
    def default(self) -> AdvanceStepDefault: ...
    @property
    def out(self) -> AdvanceStepOut: ...
    @overload
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        accepted_lens: Tensor,
        token_ids: Tensor,
        cu_seqlens: Tensor | None,
        hidden_states: Tensor | None,
        width: int,
        max_context_len: int,
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
    ]: ...
    @overload
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        accepted_lens: Tensor,
        token_ids: Tensor,
        cu_seqlens: Tensor | None,
        hidden_states: Tensor | None,
        width: int,
        max_context_len: int,
        *,
        next_seq_lens: Tensor,
        extend_lens: Tensor,
        next_token_ids: Tensor,
        positions: Tensor,
        out_full_loc: Tensor,
        out_swa_loc: Tensor,
        sampled_index: Tensor,
        next_hidden: Tensor | None = None,
    ) -> None: ...

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

class CompressMetadataDefault(Protocol):
    def __call__(
        self,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        prefix_lens: Tensor | None,
        num_draft_tokens: Tensor | None,
        form: int,
        width: int,
        num_tokens: int | SymInt,
        max_seq_len: int | SymInt,
        page_size: int,
        window: int,
        max_context_len: int,
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
    ]: ...

class CompressMetadataOut(Protocol):
    def __call__(
        self,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        prefix_lens: Tensor | None,
        num_draft_tokens: Tensor | None,
        form: int,
        width: int,
        max_seq_len: int,
        page_size: int,
        window: int,
        max_context_len: int,
        *,
        positions_c4: Tensor,
        positions_c128: Tensor,
        c4_loc: Tensor,
        c128_loc: Tensor,
        start_pos: Tensor,
        seqused: Tensor,
        cu_seqlens: Tensor,
        positions: Tensor,
        kv_lens: Tensor,
        swa_page_table: Tensor,
        c4_page_table: Tensor,
        c128_page_table: Tensor,
        c4_state_page_table: Tensor,
        c128_state_page_table: Tensor,
    ) -> None: ...

class CompressMetadata(Protocol):
    @property
    def default(self) -> CompressMetadataDefault: ...
    @property
    def out(self) -> CompressMetadataOut: ...
    @overload
    def __call__(
        self,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        prefix_lens: Tensor | None,
        num_draft_tokens: Tensor | None,
        form: int,
        width: int,
        num_tokens: int | SymInt,
        max_seq_len: int | SymInt,
        page_size: int,
        window: int,
        max_context_len: int,
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
    ]: ...
    @overload
    def __call__(
        self,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        prefix_lens: Tensor | None,
        num_draft_tokens: Tensor | None,
        form: int,
        width: int,
        max_seq_len: int,
        page_size: int,
        window: int,
        max_context_len: int,
        *,
        positions_c4: Tensor,
        positions_c128: Tensor,
        c4_loc: Tensor,
        c128_loc: Tensor,
        start_pos: Tensor,
        seqused: Tensor,
        cu_seqlens: Tensor,
        positions: Tensor,
        kv_lens: Tensor,
        swa_page_table: Tensor,
        c4_page_table: Tensor,
        c128_page_table: Tensor,
        c4_state_page_table: Tensor,
        c128_state_page_table: Tensor,
    ) -> None: ...

class CompressorMetadataDefault(Protocol):
    def __call__(
        self,
        rope_cos: Tensor,
        rope_sin: Tensor,
        cu_seqlens: Tensor,
        start_pos: Tensor,
        kv_block_table: Tensor,
        kv_block_size: int,
        slot_mapping_format: int,
        compress_ratio: int,
        num_rows: int,
        num_reqs: int,
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
    ]: ...

class CompressorMetadataOut(Protocol):
    def __call__(
        self,
        rope_cos: Tensor,
        rope_sin: Tensor,
        cu_seqlens: Tensor,
        start_pos: Tensor,
        kv_block_table: Tensor,
        kv_block_size: int,
        slot_mapping_format: int,
        compress_ratio: int,
        num_rows: int,
        num_reqs: int,
        *,
        cos_out: Tensor,
        sin_out: Tensor,
        slot_mapping_out: Tensor,
    ) -> None: ...

class CompressorMetadata(Protocol):
    @property
    def default(self) -> CompressorMetadataDefault: ...
    @property
    def out(self) -> CompressorMetadataOut: ...
    @overload
    def __call__(
        self,
        rope_cos: Tensor,
        rope_sin: Tensor,
        cu_seqlens: Tensor,
        start_pos: Tensor,
        kv_block_table: Tensor,
        kv_block_size: int,
        slot_mapping_format: int,
        compress_ratio: int,
        num_rows: int,
        num_reqs: int,
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
    ]: ...
    @overload
    def __call__(
        self,
        rope_cos: Tensor,
        rope_sin: Tensor,
        cu_seqlens: Tensor,
        start_pos: Tensor,
        kv_block_table: Tensor,
        kv_block_size: int,
        slot_mapping_format: int,
        compress_ratio: int,
        num_rows: int,
        num_reqs: int,
        *,
        cos_out: Tensor,
        sin_out: Tensor,
        slot_mapping_out: Tensor,
    ) -> None: ...

class DraftStepsDefault(Protocol):
    def __call__(
        self,
        seq_lens: Tensor,
        reservation: Tensor | None,
        req_pool_indices: Tensor | None,
        table: Tensor | None,
        rope_cos: Tensor,
        rope_sin: Tensor,
        topk: int,
        num_steps: int,
        num_entries: int | SymInt,
        max_context_len: int,
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
    ]: ...

class DraftStepsOut(Protocol):
    def __call__(
        self,
        seq_lens: Tensor,
        reservation: Tensor | None,
        req_pool_indices: Tensor | None,
        table: Tensor | None,
        rope_cos: Tensor,
        rope_sin: Tensor,
        topk: int,
        num_steps: int,
        max_context_len: int,
        *,
        slots: Tensor,
        positions: Tensor,
        kv_lens: Tensor,
        cos: Tensor,
        sin: Tensor,
    ) -> None: ...

class DraftSteps(Protocol):
    @property
    def default(self) -> DraftStepsDefault: ...
    @property
    def out(self) -> DraftStepsOut: ...
    @overload
    def __call__(
        self,
        seq_lens: Tensor,
        reservation: Tensor | None,
        req_pool_indices: Tensor | None,
        table: Tensor | None,
        rope_cos: Tensor,
        rope_sin: Tensor,
        topk: int,
        num_steps: int,
        num_entries: int | SymInt,
        max_context_len: int,
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
        seq_lens: Tensor,
        reservation: Tensor | None,
        req_pool_indices: Tensor | None,
        table: Tensor | None,
        rope_cos: Tensor,
        rope_sin: Tensor,
        topk: int,
        num_steps: int,
        max_context_len: int,
        *,
        slots: Tensor,
        positions: Tensor,
        kv_lens: Tensor,
        cos: Tensor,
        sin: Tensor,
    ) -> None: ...

class MapFullToSwaDefault(Protocol):
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        segments: Tensor,
        full_to_swa: Tensor,
        page_size: int,
        num_units: int = 0,
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
        num_units: int = 0,
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
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        free_pages: Tensor,
        segments: Tensor,
        num_pages: Sequence[int],
        page_size: int,
        num_units: int = 0,
    ) -> None: ...

class ReleasePages(Protocol):
    @property
    def default(self) -> ReleasePagesDefault: ...
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        free_pages: Tensor,
        segments: Tensor,
        num_pages: Sequence[int],
        page_size: int,
        num_units: int = 0,
    ) -> None: ...

class ReserveExtendDefault(Protocol):
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        free_pages: Tensor,
        segments: Tensor,
        num_pages: Sequence[int],
        num_slots: Sequence[int],
        page_size: int,
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
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        free_pages: Tensor,
        segments: Tensor,
        num_pages: Sequence[int],
        num_slots: Sequence[int],
        page_size: int,
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
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        free_pages: Tensor,
        segments: Tensor,
        num_pages: Sequence[int],
        num_copies: int,
        page_size: int,
        num_units: int = 0,
    ) -> tuple[
        Tensor,
        Tensor,
    ]: ...

class SharePages(Protocol):
    @property
    def default(self) -> SharePagesDefault: ...
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        free_pages: Tensor,
        segments: Tensor,
        num_pages: Sequence[int],
        num_copies: int,
        page_size: int,
        num_units: int = 0,
    ) -> tuple[
        Tensor,
        Tensor,
    ]: ...

class StepSizesDefault(Protocol):
    def __call__(
        self,
        seq_lens: Tensor,
        prefix_lens: Tensor | None,
        num_draft_tokens: Tensor | None,
        form: int,
        width: int,
    ) -> tuple[
        int | SymInt,
        int | SymInt,
        int | SymInt,
    ]: ...

class StepSizes(Protocol):
    @property
    def default(self) -> StepSizesDefault: ...
    def __call__(
        self,
        seq_lens: Tensor,
        prefix_lens: Tensor | None,
        num_draft_tokens: Tensor | None,
        form: int,
        width: int,
    ) -> tuple[
        int | SymInt,
        int | SymInt,
        int | SymInt,
    ]: ...

class VerifyBundleDefault(Protocol):
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        num_draft_tokens: Tensor | None,
        width: int,
        num_tokens: int | SymInt,
        c4_groups: int | SymInt,
        c128_groups: int | SymInt,
        max_context_len: int,
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
    ]: ...

class VerifyBundleOut(Protocol):
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        num_draft_tokens: Tensor | None,
        width: int,
        max_context_len: int,
        *,
        out_full_loc: Tensor,
        out_swa_loc: Tensor,
        out_c4_loc: Tensor,
        out_c128_loc: Tensor,
        out_c4_state_loc: Tensor,
        out_c128_state_loc: Tensor,
    ) -> None: ...

class VerifyBundle(Protocol):
    @property
    def default(self) -> VerifyBundleDefault: ...
    @property
    def out(self) -> VerifyBundleOut: ...
    @overload
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        num_draft_tokens: Tensor | None,
        width: int,
        num_tokens: int | SymInt,
        c4_groups: int | SymInt,
        c128_groups: int | SymInt,
        max_context_len: int,
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
    ]: ...
    @overload
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        num_draft_tokens: Tensor | None,
        width: int,
        max_context_len: int,
        *,
        out_full_loc: Tensor,
        out_swa_loc: Tensor,
        out_c4_loc: Tensor,
        out_c128_loc: Tensor,
        out_c4_state_loc: Tensor,
        out_c128_state_loc: Tensor,
    ) -> None: ...

class VerifyStepDefault(Protocol):
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        num_draft_tokens: Tensor | None,
        rope_cos: Tensor,
        rope_sin: Tensor,
        width: int,
        num_tokens: int | SymInt,
        max_seq_len: int | SymInt,
        page_size: int,
        window: int,
        max_context_len: int,
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
    ]: ...

class VerifyStepOut(Protocol):
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        num_draft_tokens: Tensor | None,
        rope_cos: Tensor,
        rope_sin: Tensor,
        width: int,
        max_seq_len: int,
        page_size: int,
        window: int,
        max_context_len: int,
        *,
        out_full_loc: Tensor,
        out_swa_loc: Tensor,
        out_c4_loc: Tensor,
        out_c128_loc: Tensor,
        out_c4_state_loc: Tensor,
        out_c128_state_loc: Tensor,
        positions_c4: Tensor,
        positions_c128: Tensor,
        c4_loc: Tensor,
        c128_loc: Tensor,
        start_pos: Tensor,
        seqused: Tensor,
        cu_seqlens: Tensor,
        positions: Tensor,
        kv_lens: Tensor,
        swa_page_table: Tensor,
        c4_page_table: Tensor,
        c128_page_table: Tensor,
        c4_state_page_table: Tensor,
        c128_state_page_table: Tensor,
        c4_cos: Tensor,
        c4_sin: Tensor,
        c128_cos: Tensor,
        c128_sin: Tensor,
    ) -> None: ...

class VerifyStep(Protocol):
    @property
    def default(self) -> VerifyStepDefault: ...
    @property
    def out(self) -> VerifyStepOut: ...
    @overload
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        num_draft_tokens: Tensor | None,
        rope_cos: Tensor,
        rope_sin: Tensor,
        width: int,
        num_tokens: int | SymInt,
        max_seq_len: int | SymInt,
        page_size: int,
        window: int,
        max_context_len: int,
    ) -> tuple[
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
        Tensor,
    ]: ...
    @overload
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        seq_lens: Tensor,
        num_draft_tokens: Tensor | None,
        rope_cos: Tensor,
        rope_sin: Tensor,
        width: int,
        max_seq_len: int,
        page_size: int,
        window: int,
        max_context_len: int,
        *,
        out_full_loc: Tensor,
        out_swa_loc: Tensor,
        out_c4_loc: Tensor,
        out_c128_loc: Tensor,
        out_c4_state_loc: Tensor,
        out_c128_state_loc: Tensor,
        positions_c4: Tensor,
        positions_c128: Tensor,
        c4_loc: Tensor,
        c128_loc: Tensor,
        start_pos: Tensor,
        seqused: Tensor,
        cu_seqlens: Tensor,
        positions: Tensor,
        kv_lens: Tensor,
        swa_page_table: Tensor,
        c4_page_table: Tensor,
        c128_page_table: Tensor,
        c4_state_page_table: Tensor,
        c128_state_page_table: Tensor,
        c4_cos: Tensor,
        c4_sin: Tensor,
        c128_cos: Tensor,
        c128_sin: Tensor,
    ) -> None: ...

class WriteReqTablesDefault(Protocol):
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        starts: Tensor,
        ends: Tensor,
        full_loc: Tensor,
        swa_loc: Tensor,
        c4_loc: Tensor,
        c128_loc: Tensor,
        c4_state_loc: Tensor,
        c128_state_loc: Tensor,
        *,
        c4_state_starts: Tensor | None = None,
        c128_state_starts: Tensor | None = None,
    ) -> None: ...

class WriteReqTables(Protocol):
    @property
    def default(self) -> WriteReqTablesDefault: ...
    def __call__(
        self,
        full_table: Tensor,
        swa_table: Tensor,
        c4_table: Tensor,
        c128_table: Tensor,
        c4_state_table: Tensor,
        c128_state_table: Tensor,
        req_pool_indices: Tensor,
        starts: Tensor,
        ends: Tensor,
        full_loc: Tensor,
        swa_loc: Tensor,
        c4_loc: Tensor,
        c128_loc: Tensor,
        c4_state_loc: Tensor,
        c128_state_loc: Tensor,
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
    def compress_metadata(self) -> CompressMetadata: ...
    @property
    def compressor_metadata(self) -> CompressorMetadata: ...
    @property
    def draft_steps(self) -> DraftSteps: ...
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
    def step_sizes(self) -> StepSizes: ...
    @property
    def verify_bundle(self) -> VerifyBundle: ...
    @property
    def verify_step(self) -> VerifyStep: ...
    @property
    def write_req_tables(self) -> WriteReqTables: ...

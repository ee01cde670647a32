"""Turns rows and lengths into steps: every piece of a step's bookkeeping comes from one of this library's ops."""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DeepseekV4Config

from dsv4_npu_ops import (
    CompressMetadata,
    HostStaging,
    KVLayout,
    OutCacheLoc,
    RequestTables,
    RopeCache,
    advance_step,
    apply_rotary,
    build_compress_metadata_prefill,
    build_compress_metadata_verify,
    build_freqs_cis,
    build_verify_step,
    flatten_verify_bundle,
    rope_gather,
)
from dsv4_npu_ops.graph import MultiStepDraft
from dsv4_npu_ops.layout import POOLS
from dsv4_npu_ops.mtp.pools import layer_ratios
from dsv4_npu_ops.mtp.stats import OpClock
from dsv4_npu_ops.mtp.step import Rotary, Step

_NO_TOKENS = torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True)
class Batch:
    """Rows of one step, on the host.

    Attributes:
        rows: request pool indices; padding rows repeat a live one, nothing is read through it.
        lens: committed lengths, 0 for padding rows.
        widths: new tokens per row; a padding row of a uniform batch holds as many tokens as the others.
        live: rows before the padding.
        device_lens: ``[B]`` int32 committed lengths on the model's device when only that knows them; ``lens`` are then
            upper bounds.
    """

    rows: list[int]
    lens: list[int]
    widths: list[int]
    live: int
    device_lens: Tensor | None = None

    @classmethod
    def padded(cls, rows: list[int], lens: list[int], widths: list[int], bucket: int) -> "Batch":
        """The batch filled up with padding rows to a multiple of ``bucket`` rows."""
        live = len(rows)
        padding = -live % bucket
        width = widths[0] if len(set(widths)) == 1 else 0
        return cls(rows + rows[:1] * padding, lens + [0] * padding, widths + [width] * padding, live)

    @property
    def max_width(self) -> int:
        return max(self.widths)

    @property
    def num_tokens(self) -> int:
        return sum(self.widths)

    @property
    def max_final_len(self) -> int:
        return max(length + width for length, width in zip(self.lens, self.widths, strict=True) if length)

    def completed_groups(self, ratio: int) -> int:
        """Groups of ``ratio`` that the live rows complete."""
        live = zip(self.lens[: self.live], self.widths[: self.live], strict=True)
        return sum((length + width) // ratio - length // ratio for length, width in live)


class StepBuilder:
    """Builds steps through the ops, and counts their calls.

    Args:
        config: the target's config, for the two RoPE bases.
        tables: the request tables.
        layout: page size, window and longest context.
        clock: counts calls and time of every op.
        model_device: where the model computes; default: the layout's device. If they differ, each tensor of a step is
            copied there, counted as ``copy_to_model``, and what the ops need of the model's is copied back, counted as
            ``copy_to_ops``.
        max_rows: most rows of a batch, padding included.
        draft_steps: most single-token passes of the MTP layer behind one another.
    """

    def __init__(
        self,
        config: DeepseekV4Config,
        tables: RequestTables,
        layout: KVLayout,
        clock: OpClock,
        model_device: torch.device | str | None = None,
        *,
        max_rows: int,
        draft_steps: int,
    ) -> None:
        self._tables, self._layout = tables, layout
        self._page_sizes = {pool: layout.page_size_of(pool) for pool in POOLS if layout.has_pool(pool)}
        self._model_device = torch.device(layout.device if model_device is None else model_device)
        self._staging = HostStaging(layout.device)
        self._copy_to_model = clock.wrap(lambda tensor: tensor.to(self._model_device), "copy_to_model")
        self._copy_to_ops = clock.wrap(lambda tensor: tensor.to(tables.device), "copy_to_ops")
        cache = RopeCache()
        self._rope: dict[str, Rotary] = {}
        for base, ratio in (("main", 0), ("compress", 4)):
            freqs = build_freqs_cis(config, ratio, layout.max_context_len).to(layout.device)
            self._rope[base] = cache.get(freqs, torch.float32)
        self._bases = ["main", "compress"] if any(layer_ratios(config)) else ["main"]
        self._prefill = clock.wrap(build_compress_metadata_prefill)
        self._verify = clock.wrap(build_compress_metadata_verify)
        self._verify_step = clock.wrap(build_verify_step)
        self._bundle = clock.wrap(flatten_verify_bundle)
        self._gather = clock.wrap(rope_gather)
        self._advance = clock.wrap(advance_step)
        if draft_steps > 0:
            draft = MultiStepDraft(tables, max_rows, draft_steps, *self._rope["main"])
            self._prepare_drafts = clock.wrap(draft.prepare, "build_draft_steps")
        self.apply_rotary = clock.wrap(apply_rotary)

    def ints(self, values: list[int]) -> Tensor:
        """int32 host values as a tensor on the model's device."""
        return torch.tensor(values, dtype=torch.int32).to(self._model_device)

    def _columns(self, *columns: list[int]) -> tuple[Tensor, ...]:
        """int32 host values as vectors on the layout's device, brought there by one copy that nobody waits for."""
        (values,) = self._staging.to_device(torch.tensor(columns, dtype=torch.int32))
        return values.unbind()

    def _rows(self, batch: Batch) -> tuple[Tensor, Tensor, int | Tensor]:
        """Request indices, committed lengths and widths as the ops take them."""
        uniform = len(set(batch.widths)) == 1
        rows, lens, *widths = self._columns(batch.rows, batch.lens, *([] if uniform else [batch.widths]))
        if batch.device_lens is not None:
            lens = self._for_ops(batch.device_lens)
        return rows, lens, batch.widths[0] if uniform else widths[0]

    def _for_ops(self, tensor: Tensor) -> Tensor:
        return tensor if tensor.device == self._tables.device else self._copy_to_ops(tensor)

    def _for_model(self, tensor: Tensor) -> Tensor:
        return tensor if tensor.device == self._model_device else self._copy_to_model(tensor)

    def _pairs_for_model(self, pairs: dict[Any, Rotary]) -> dict[Any, Rotary]:
        return {key: (self._for_model(cos), self._for_model(sin)) for key, (cos, sin) in pairs.items()}

    def _token_rotary(self, metadata: CompressMetadata, bases: list[str]) -> dict[str, Rotary]:
        return {base: self._gather(*self._rope[base], metadata.positions) for base in bases}

    def _step(
        self,
        metadata: CompressMetadata,
        swa_slots: Tensor,
        max_width: int,
        max_kv_len: int,
        rotary: dict[str, Rotary],
        *,
        state_slots: dict[int, Tensor] | None = None,
        group_rotary: dict[int, Rotary] | None = None,
        group_counts: dict[int, int] | None = None,
    ) -> Step:
        """The one place where what the ops have computed is brought to the model."""
        return Step(
            _NO_TOKENS,
            CompressMetadata(*(self._for_model(getattr(metadata, field.name)) for field in fields(metadata))),
            self._page_sizes,
            self._layout.sliding_window,
            max_width,
            max_kv_len,
            self._for_model(swa_slots),
            self._pairs_for_model(rotary),
            {ratio: self._for_model(slots) for ratio, slots in (state_slots or {}).items()},
            self._pairs_for_model(group_rotary or {}),
            group_counts or {},
        )

    def prefill(self, batch: Batch, slots: OutCacheLoc) -> Step:
        """A prefill chunk of every row.

        Args:
            batch: ``lens`` are the tokens cached before, widths the chunks; no padding rows.
            slots: what the allocation of the chunk returned. Only the tail of a chunk owns state slots; the others are
                0, which sends those tokens' state to the dummy row.
        """
        finals = [length + width for length, width in zip(batch.lens, batch.widths, strict=True)]
        metadata = self._prefill(
            self._tables,
            *self._columns(batch.rows, batch.lens, finals),
            num_tokens=batch.num_tokens,
            max_seq_len=max(finals),
        )
        counts = {ratio: batch.completed_groups(ratio) for ratio in (4, 128)}
        group_rotary = {
            ratio: self._gather(*self._rope["compress"], positions)
            for ratio, positions in ((4, metadata.positions_c4), (128, metadata.positions_c128))
            if counts[ratio]
        }
        rotary = self._token_rotary(metadata, self._bases)
        return self._target_step(batch, metadata, slots, max(finals), counts, rotary, group_rotary)

    def verify(self, batch: Batch) -> Step:
        """The target's verify of every row at its committed length: one op for slots, metadata and RoPE rows.

        When the host does not know the lengths, every group that the step could complete is computed; those that it
        does not complete are dummies.
        """
        built = self._verify_step(
            self._tables,
            *self._rows(batch),
            *self._rope["compress"],
            num_tokens=batch.num_tokens,
            max_seq_len=batch.max_final_len,
            **{f"{base}_rope": self._rope[base] for base in self._bases},
        )
        if batch.device_lens is None:
            counts = {ratio: batch.completed_groups(ratio) for ratio in (4, 128)}
        else:
            counts = {4: len(built.metadata.positions_c4), 128: len(built.metadata.positions_c128)}
        group_rotary = {4: (built.c4_cos, built.c4_sin), 128: (built.c128_cos, built.c128_sin)}
        rotary = {base: (getattr(built, f"{base}_cos"), getattr(built, f"{base}_sin")) for base in self._bases}
        slots, longest = built.out_cache_loc, batch.max_final_len
        return self._target_step(batch, built.metadata, slots, longest, counts, rotary, group_rotary)

    def _target_step(
        self,
        batch: Batch,
        metadata: CompressMetadata,
        slots: OutCacheLoc,
        max_kv_len: int,
        group_counts: dict[int, int],
        rotary: dict[str, Rotary],
        group_rotary: dict[int, Rotary],
    ) -> Step:
        return self._step(
            metadata,
            slots.out_swa_loc,
            batch.max_width,
            max_kv_len,
            rotary,
            state_slots={4: slots.out_c4_state_loc, 128: slots.out_c128_state_loc},
            group_rotary=group_rotary,
            group_counts=group_counts,
        )

    def draft_extend(self, batch: Batch) -> Step:
        """The MTP layer's pass over accepted tokens: the verify form, widths = accepted lengths, groups ignored."""
        rows, lens, widths = self._rows(batch)
        metadata = self._verify(
            self._tables, rows, lens, widths, num_tokens=batch.num_tokens, max_seq_len=batch.max_final_len
        )
        slots = self._bundle(self._tables, rows, lens, widths, num_tokens=batch.num_tokens)
        rotary = self._token_rotary(metadata, ["main"])
        return self._step(metadata, slots.out_swa_loc, batch.max_width, batch.max_final_len, rotary)

    def drafts(self, batch: Batch, verify: Step) -> list[Step]:
        """The MTP passes over one guess a row behind a verify's first guess, at positions ``L``, ``L + 1``, ..

        Args:
            batch: the verify's rows; one of width n has ``n - 2`` passes and sits out in the others.
            verify: its page tables cover the windows of all passes.
        """
        if batch.max_width <= 2:
            return []
        rows, lens, _ = self._rows(batch)
        prepared = self._prepare_drafts(lens, req_pool_indices=rows)[: batch.max_width - 2]
        offsets = self.ints(list(range(len(batch.rows) + 1)))
        lengths = zip(batch.lens, batch.widths, strict=True)
        passes = self.ints([width - 2 if length > 0 else 0 for length, width in lengths])
        steps = []
        for done, draft in enumerate(prepared):
            going = (passes > done).int()
            metadata = replace(
                verify.metadata,
                start_pos=self._for_model(draft.positions) * going,
                seqused=going,
                cu_seqlens=offsets,
                positions=draft.positions,
                kv_lens=draft.kv_lens,
            )
            slots = self._for_model(draft.out_cache_loc.out_swa_loc) * going
            steps.append(self._step(metadata, slots, 1, batch.max_final_len, {"main": (draft.cos, draft.sin)}))
        return steps

    def advance(
        self, batch: Batch, verify: Step, accepted: Tensor, sampled: Tensor, hidden: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """What follows from a verify's accepted lengths ``[B]``, which only the device knows.

        Args:
            batch, verify: the verify.
            accepted: ``[B]``, anything for padding rows.
            sampled: ``[T]`` the token after every input.
            hidden: ``[T, ...]`` of the inputs, or None.

        Returns:
            committed lengths and newest tokens ``[B]``, and the hidden states of the last accepted inputs.
        """
        rows, lens, _ = self._rows(batch)
        advanced = self._advance(
            self._tables,
            rows,
            lens,
            self._for_ops(accepted),
            self._for_ops(sampled),
            cu_seqlens=self._for_ops(verify.metadata.cu_seqlens),
            hidden_states=None if hidden is None else self._for_ops(hidden),
        )
        states = advanced.hidden_states
        seq_lens, token_ids = advanced.lengths_and_tokens()
        return (
            self._for_model(seq_lens),
            self._for_model(token_ids),
            None if states is None else self._for_model(states),
        )

"""Turns rows and lengths into steps: every piece of a step's bookkeeping comes from one of this library's ops."""

from dataclasses import dataclass, fields
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
    apply_rotary,
    build_compress_metadata_decode,
    build_compress_metadata_prefill,
    build_compress_metadata_verify,
    build_freqs_cis,
    build_verify_step,
    flatten_verify_bundle,
    rope_gather,
)
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
        device_lens: ``[B]`` int32 committed lengths when only the device knows them; ``lens`` are then upper bounds.
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
            copied there, counted as ``copy_to_model``.
    """

    def __init__(
        self,
        config: DeepseekV4Config,
        tables: RequestTables,
        layout: KVLayout,
        clock: OpClock,
        model_device: torch.device | str | None = None,
    ) -> None:
        self._tables, self._layout = tables, layout
        self._model_device = torch.device(layout.device if model_device is None else model_device)
        self._staging = HostStaging(layout.device)
        self._copy_to_model = clock.wrap(lambda tensor: tensor.to(self._model_device), "copy_to_model")
        cache = RopeCache()
        self._rope: dict[str, Rotary] = {}
        for base, ratio in (("main", 0), ("compress", 4)):
            freqs = build_freqs_cis(config, ratio, layout.max_context_len).to(layout.device)
            self._rope[base] = cache.get(freqs, torch.float32)
        self._bases = ["main", "compress"] if any(layer_ratios(config)) else ["main"]
        self._prefill = clock.wrap(build_compress_metadata_prefill)
        self._decode = clock.wrap(build_compress_metadata_decode)
        self._verify = clock.wrap(build_compress_metadata_verify)
        self._verify_step = clock.wrap(build_verify_step)
        self._bundle = clock.wrap(flatten_verify_bundle)
        self._gather = clock.wrap(rope_gather)
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
            lens = batch.device_lens
        return rows, lens, batch.widths[0] if uniform else widths[0]

    def _for_model(self, tensor: Tensor) -> Tensor:
        return tensor if tensor.device == self._model_device else self._copy_to_model(tensor)

    def _pairs_for_model(self, pairs: dict[Any, Rotary]) -> dict[Any, Rotary]:
        return {key: (self._for_model(cos), self._for_model(sin)) for key, (cos, sin) in pairs.items()}

    def _step(
        self,
        metadata: CompressMetadata,
        swa_slots: Tensor,
        max_width: int,
        max_kv_len: int,
        bases: list[str],
        *,
        state_slots: dict[int, Tensor] | None = None,
        group_rotary: dict[int, Rotary] | None = None,
        group_counts: dict[int, int] | None = None,
    ) -> Step:
        """The one place where what the ops have computed is brought to the model."""
        rotary = {base: self._gather(*self._rope[base], metadata.positions) for base in bases}
        return Step(
            _NO_TOKENS,
            CompressMetadata(*(self._for_model(getattr(metadata, field.name)) for field in fields(metadata))),
            self._layout.page_size,
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
        return self._target_step(batch, metadata, slots, max(finals), counts, group_rotary)

    def verify(self, batch: Batch) -> Step:
        """The target's verify of every row at its committed length: one op for slots, metadata and group RoPE rows.

        When the host does not know the lengths, every group that the step could complete is computed; those that it
        does not complete are dummies.
        """
        built = self._verify_step(
            self._tables,
            *self._rows(batch),
            *self._rope["compress"],
            num_tokens=batch.num_tokens,
            max_seq_len=batch.max_final_len,
        )
        if batch.device_lens is None:
            counts = {ratio: batch.completed_groups(ratio) for ratio in (4, 128)}
        else:
            counts = {4: len(built.metadata.positions_c4), 128: len(built.metadata.positions_c128)}
        group_rotary = {4: (built.c4_cos, built.c4_sin), 128: (built.c128_cos, built.c128_sin)}
        return self._target_step(batch, built.metadata, built.out_cache_loc, batch.max_final_len, counts, group_rotary)

    def _target_step(
        self,
        batch: Batch,
        metadata: CompressMetadata,
        slots: OutCacheLoc,
        max_kv_len: int,
        group_counts: dict[int, int],
        group_rotary: dict[int, Rotary],
    ) -> Step:
        return self._step(
            metadata,
            slots.out_swa_loc,
            batch.max_width,
            max_kv_len,
            self._bases,
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
        return self._step(metadata, slots.out_swa_loc, batch.max_width, batch.max_final_len, ["main"])

    def draft(self, batch: Batch, swa_slots: Tensor) -> Step:
        """One MTP pass over a single guess a row, at position ``lens``; rows with length 0 sit out.

        Args:
            batch: widths are all 1.
            swa_slots: ``[B]`` slots of those positions, 0 where a row sits out.
        """
        finals = [length + 1 if length else 0 for length in batch.lens]
        rows, seq_lens = self._columns(batch.rows, finals)
        if batch.device_lens is not None:
            seq_lens = torch.where(batch.device_lens > 0, batch.device_lens + 1, 0)
        metadata = self._decode(self._tables, rows, seq_lens, max_seq_len=max(finals))
        return self._step(metadata, swa_slots, 1, max(finals), ["main"])

"""Where guesses come from: the paged MTP layer, or a script that a test supplies."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from dsv4_npu_ops.mtp.attention import PagedLayer
from dsv4_npu_ops.mtp.batch import Batch, StepBuilder
from dsv4_npu_ops.mtp.nextn import NextnLayer
from dsv4_npu_ops.mtp.pools import LayerPools
from dsv4_npu_ops.mtp.stats import RunStats
from dsv4_npu_ops.mtp.step import Step

Script = Callable[[int, list[int], list[int]], list[int]]
"""``script(request index, tokens generated so far, the drafter's guesses)`` gives the guesses to verify instead."""

DeviceScript = Callable[[list[int], Tensor, Tensor], Tensor]
"""``device_script(request indices, committed lengths [B], the drafter's guesses [B, Q - 1])`` gives the guesses to
verify instead by tensor operations: with overlapped scheduling the host knows none of the values."""


class Drafter(Protocol):
    """What the runner asks of a source of guesses."""

    def after_prefill(self, batch: Batch, step: Step, streams: Tensor, next_tokens: Tensor) -> None:
        """Takes the target's streams of a prefill step; ``next_tokens`` ``[T]`` follow the step's tokens."""

    def after_verify(
        self, batch: Batch, step: Step, streams: Tensor, next_tokens: Tensor, kept: list[int], accepted: list[int]
    ) -> None:
        """Takes the target's streams of a verify step; ``kept`` are the batch rows that go on."""

    def extend(self, step: Step, streams: Tensor, next_tokens: Tensor) -> Tensor | None:
        """Takes the target's streams of a verify step whose accepted lengths the host does not know.

        Returns:
            ``[T, ...]`` what ``remember`` wants of each row's last accepted token, or None.
        """

    def remember(self, rows: list[int], streams: Tensor) -> None:
        """Takes ``[len(rows), ...]``, the last accepted token's share of what ``extend`` returned, per request row."""

    def propose(self, batch: Batch, step: Step, histories: list[tuple[int, list[int]]]) -> Tensor:
        """``[B, max_width - 1]`` guesses for a verify step; entries beyond a row's width are ignored.

        Args:
            batch: the step's rows, committed lengths and widths.
            step: the verify step, for the slots of its positions.
            histories: request index and generated tokens of every live row, as far as the host knows them.
        """


class ReplacedGuesses:
    """A drafter whose guesses a subclass replaces; it keeps its caches as if its own were used.

    Args:
        inner: the drafter; None proposes zeros.
    """

    def __init__(self, inner: Drafter | None) -> None:
        self._inner = inner

    def after_prefill(self, batch: Batch, step: Step, streams: Tensor, next_tokens: Tensor) -> None:
        """See ``Drafter.after_prefill``."""
        if self._inner is not None:
            self._inner.after_prefill(batch, step, streams, next_tokens)

    def after_verify(
        self, batch: Batch, step: Step, streams: Tensor, next_tokens: Tensor, kept: list[int], accepted: list[int]
    ) -> None:
        """See ``Drafter.after_verify``."""
        if self._inner is not None:
            self._inner.after_verify(batch, step, streams, next_tokens, kept, accepted)

    def extend(self, step: Step, streams: Tensor, next_tokens: Tensor) -> Tensor | None:
        """See ``Drafter.extend``."""
        return None if self._inner is None else self._inner.extend(step, streams, next_tokens)

    def remember(self, rows: list[int], streams: Tensor) -> None:
        """See ``Drafter.remember``."""
        if self._inner is not None:
            self._inner.remember(rows, streams)

    def _guesses(self, batch: Batch, step: Step, histories: list[tuple[int, list[int]]]) -> Tensor:
        if self._inner is not None:
            return self._inner.propose(batch, step, histories)
        shape = (len(batch.rows), batch.max_width - 1)
        return torch.zeros(shape, dtype=torch.int64, device=step.swa_slots.device)


class ScriptedDrafter(ReplacedGuesses):
    """Replaces another drafter's guesses by a callable's; forces any accepted length.

    Args:
        script: the callable.
        inner: see ``ReplacedGuesses``.
    """

    def __init__(self, script: Script, inner: Drafter | None) -> None:
        super().__init__(inner)
        self._script = script

    def propose(self, batch: Batch, step: Step, histories: list[tuple[int, list[int]]]) -> Tensor:
        """See ``Drafter.propose``."""
        guesses = self._guesses(batch, step, histories).tolist()
        for row, (index, generated) in enumerate(histories):
            count = batch.widths[row] - 1
            guesses[row][:count] = self._script(index, generated, guesses[row][:count])
        return torch.tensor(guesses, dtype=torch.int64).to(step.swa_slots.device)


class DeviceScriptedDrafter(ReplacedGuesses):
    """Replaces another drafter's guesses by a callable's that sees tensors only.

    Args:
        script: the callable.
        inner: see ``ReplacedGuesses``.
    """

    def __init__(self, script: DeviceScript, inner: Drafter | None) -> None:
        super().__init__(inner)
        self._script = script

    def propose(self, batch: Batch, step: Step, histories: list[tuple[int, list[int]]]) -> Tensor:
        """See ``Drafter.propose``."""
        guesses = self._guesses(batch, step, histories)
        live = batch.live
        guesses[:live] = self._script([index for index, _ in histories], step.start_pos[:live], guesses[:live])
        return guesses


class MtpDrafter:
    """The MTP layer over its own sliding-window KV, at the same slots of the ``swa`` pool as the target's.

    After every target step the layer's cache is brought up to the committed length from the target's streams (draft
    extend), which also gives the first guess; further guesses are single-token passes fed with the layer's own output
    streams, whose cache entries the next draft extend overwrites (docs/spec.md, lengths).

    Args:
        nextn: the MTP layer with the target's embedding and lm_head.
        pools: its pool tensors.
        builder: builds its steps.
        max_requests: rows of the request tables.
        stats: counts its passes.
    """

    def __init__(
        self, nextn: NextnLayer, pools: LayerPools, builder: StepBuilder, max_requests: int, stats: RunStats
    ) -> None:
        self._nextn, self._builder, self._stats = nextn, builder, stats
        self._layer = PagedLayer(nextn.decoder, pools, builder.apply_rotary)
        weight = nextn.lm_head.weight
        # Per request: the guess for the token after the last sampled one, and the streams that gave it.
        self._first_guess = torch.zeros(max_requests, dtype=torch.int64, device=weight.device)
        self._streams = torch.zeros(
            max_requests, nextn.config.hc_mult, nextn.config.hidden_size, dtype=weight.dtype, device=weight.device
        )

    @torch.no_grad()
    def _forward(self, step: Step, next_tokens: Tensor, streams: Tensor) -> Tensor:
        step.token_ids = next_tokens
        return self._layer(self._nextn.combine(next_tokens[None], streams), step)

    @torch.no_grad()
    def _guess(self, streams: Tensor) -> Tensor:
        return self._nextn.logits(streams)[0].argmax(dim=-1)

    def remember(self, rows: list[int], streams: Tensor) -> None:
        """See ``Drafter.remember``: the layer's streams ``[len(rows), hc_mult, D]`` give the first guess."""
        owners = self._builder.ints(rows).long()
        self._streams[owners] = streams
        self._first_guess[owners] = self._guess(streams[None])

    def recall(self, rows: list[int]) -> Tensor:
        """``[len(rows), hc_mult, D]``, what ``remember`` has taken of the requests last."""
        return self._streams[self._builder.ints(rows).long()]

    def _remember_last(self, rows: list[int], step: Step, streams: Tensor) -> None:
        self.remember(rows, streams[0, step.last_token[: len(rows)]])

    def after_prefill(self, batch: Batch, step: Step, streams: Tensor, next_tokens: Tensor) -> None:
        """See ``Drafter.after_prefill``: a prefill chunk of the MTP layer covers the same positions."""
        self._stats.draft_extend_passes += 1
        self._remember_last(batch.rows[: batch.live], step, self._forward(step, next_tokens, streams))

    def after_verify(
        self, batch: Batch, step: Step, streams: Tensor, next_tokens: Tensor, kept: list[int], accepted: list[int]
    ) -> None:
        """See ``Drafter.after_verify``: draft extend over the accepted tokens of the rows that go on."""
        self._stats.draft_extend_passes += 1
        extend = Batch(
            [batch.rows[i] for i in kept], [batch.lens[i] for i in kept], [accepted[i] for i in kept], len(kept)
        )
        extend_step = self._builder.draft_extend(extend)
        source_row = self._builder.ints(kept).long()[extend_step.row_of_token]
        source = step.token_offsets[source_row] + extend_step.index_in_row
        out = self._forward(extend_step, next_tokens[source], streams[:, source])
        self._remember_last(extend.rows, extend_step, out)

    def extend(self, step: Step, streams: Tensor, next_tokens: Tensor) -> Tensor | None:
        """See ``Drafter.extend``: draft extend over all of a verify's tokens, at the step's own positions and slots.

        What it caches behind a row's accepted tokens is overwritten by the next one before anybody reads it.
        """
        self._stats.draft_extend_passes += 1
        return self._forward(step, next_tokens, streams)[0]

    def propose(self, batch: Batch, step: Step, histories: list[tuple[int, list[int]]]) -> Tensor:
        """See ``Drafter.propose``: the remembered first guess, then one pass a further guess."""
        owners = self._builder.ints(batch.rows).long()
        guesses, streams = [self._first_guess[owners]], self._streams[owners][None]
        for draft_step in self._builder.drafts(batch, step):
            streams = self._forward(draft_step, guesses[-1], streams)
            guesses.append(self._guess(streams))
            self._stats.draft_passes += 1
        return torch.stack(guesses, dim=1)

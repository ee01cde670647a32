"""The steps of one ``generate`` call: prefill and verify forwards with their allocation, drafting and acceptance."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from dsv4_npu_ops import KVAllocator, KVLayout
from dsv4_npu_ops.mtp.batch import Batch, StepBuilder
from dsv4_npu_ops.mtp.drafter import Drafter
from dsv4_npu_ops.mtp.scheduler import Running
from dsv4_npu_ops.mtp.stats import RunStats
from dsv4_npu_ops.mtp.step import Step
from dsv4_npu_ops.mtp.target import PagedTarget

Observer = Callable[[list[Running], Step, Tensor, Tensor], None]
"""``observer(rows, step, streams, logits)`` after every target forward; logits ``[T, V]``, in prefill ``[B, V]``."""


class Verified(NamedTuple):
    """What a target verify of B rows and T tokens, at most Q a row, leaves on the device.

    ``inputs`` ``[B, Q]`` are the newest tokens and the guesses, ``streams`` ``[1, T, hc_mult, D]`` the target's
    pre-head streams, ``greedy`` ``[T]`` its token after every input.
    """

    step: Step
    inputs: Tensor
    streams: Tensor
    greedy: Tensor


class Run:
    """The steps of one ``generate`` call, each of which reads its results before it returns.

    Args:
        layout: longest context.
        allocator: of the runner's tables.
        target: the target model over the runner's pools.
        builder: builds the steps.
        drafter: where guesses come from; None decodes without.
        stats: counts.
        eos: tokens that end a request.
        observer: called after every target forward.
        bucket: rows that verify batches are padded to a multiple of.
    """

    def __init__(
        self,
        layout: KVLayout,
        allocator: KVAllocator,
        target: PagedTarget,
        builder: StepBuilder,
        drafter: Drafter | None,
        stats: RunStats,
        *,
        eos: frozenset[int],
        observer: Observer | None,
        bucket: int,
    ) -> None:
        clock = stats.ops
        self._stats, self._eos, self._observer = stats, eos, observer
        self._max_context_len, self._bucket = layout.max_context_len, bucket
        self._builder, self._drafter, self._target = builder, drafter, target
        self._alloc_extend = clock.wrap(allocator.alloc_extend, "alloc_extend")
        self._reserve_extend = clock.wrap(allocator.reserve_extend, "reserve_extend")
        self._evict = clock.wrap(allocator.evict, "evict")
        self.free = clock.wrap(allocator.free, "free")

    def retract(self, running: Running) -> None:
        """Frees the row of a request that will be prefilled again; one that was only admitted has nothing in it."""
        if running.committed:
            self.free([running.row])
        self._stats.retractions += 1
        self._stats.recomputed_tokens += running.committed

    def prefill(self, rows: list[Running]) -> None:
        """One chunk of every row's prompt; rows whose prompt is done get their first token, unless they had one."""
        for running, token in zip(rows, self._launch_prefill(rows).tolist(), strict=True):
            if not running.prefilling and not running.generated:
                self._stats.emitted_tokens += running.take([token], self._eos, self._max_context_len)

    def _launch_prefill(self, rows: list[Running]) -> Tensor:
        """One chunk of every row's prompt; returns the tokens sampled behind the chunks, ``[B]`` int64, unread."""
        prompts = [running.prompt for running in rows]
        lens = [running.committed for running in rows]
        finals = [running.next_len for running in rows]
        pool_rows = [running.row for running in rows]
        slots = self._alloc_extend(pool_rows, lens, finals)
        batch = Batch(pool_rows, lens, [b - a for a, b in zip(lens, finals, strict=True)], len(rows))
        step = self._builder.prefill(batch, slots)
        spans = list(zip(prompts, lens, finals, strict=True))
        step.token_ids = self._tokens([prompt[a:b] for prompt, a, b in spans])
        streams = self._target(step)
        logits = self._target.logits(streams[:, step.last_token])
        if self._observer is not None:
            self._observer(rows, step, streams, logits)
        sampled = logits.argmax(dim=-1)
        self._stats.prefill_steps += 1
        self._stats.prefill_tokens += batch.num_tokens
        if self._drafter is not None:
            # The token after a chunk is the prompt's own; after the last chunk the sampled one, or that of a request
            # which resumes.
            known = [prompt + running.generated[-1:] for prompt, running in zip(prompts, rows, strict=True)]
            following = self._tokens(
                [[*tokens[a + 1 : b + 1], 0][: b - a] for tokens, a, b in zip(known, lens, finals, strict=True)]
            )
            unknown = self._builder.ints([int(b == len(tokens)) for tokens, b in zip(known, finals, strict=True)]) > 0
            following[step.last_token] = torch.where(unknown, sampled, following[step.last_token])
            self._drafter.after_prefill(batch, step, streams, following)
        self._evict(pool_rows, finals)
        for running, final in zip(rows, finals, strict=True):
            running.committed = final
        return sampled

    def verify(self, rows: list[Running]) -> None:
        """Drafts, verifies and commits; every row goes on by its accepted length."""
        lens = [running.committed for running in rows]
        # The newest token sits at position L; the last possible one is never cached.
        widths = [
            min(running.request.num_draft_tokens, self._max_context_len - 1 - running.committed) for running in rows
        ]
        pool_rows = [running.row for running in rows]
        self._reserve_extend(pool_rows, lens, [a + b for a, b in zip(lens, widths, strict=True)])
        batch = Batch.padded(pool_rows, lens, widths, self._bucket)
        newest = self._builder.ints([running.generated[-1] for running in rows] + [0] * (len(batch.rows) - len(rows)))
        verified = self._launch_verify(rows, batch, newest.long())
        accepted, tokens = (values.tolist() for values in accept(verified))
        kept = []
        for i, running in enumerate(rows):
            self._commit(running, tokens[i][: accepted[i]])
            if not running.finish_reason:
                kept.append(i)
        if kept:
            if self._drafter is not None:
                self._drafter.after_verify(batch, verified.step, verified.streams, verified.greedy, kept, accepted)
            self._evict([rows[i].row for i in kept], [rows[i].committed for i in kept])

    def _launch_verify(self, rows: list[Running], batch: Batch, newest: Tensor) -> Verified:
        """Guesses, and the target's forward over them; ``newest`` ``[B]`` int64 are the tokens that are not cached."""
        step = self._builder.verify(batch)
        inputs = newest[:, None]
        if self._drafter is not None and batch.max_width > 1:
            histories = [(running.request.index, running.generated) for running in rows]
            inputs = torch.cat([inputs, self._drafter.propose(batch, step, histories)], dim=1)
        step.token_ids = step.unpad(inputs)
        streams = self._target(step)
        logits = self._target.logits(streams)
        if self._observer is not None:
            self._observer(rows, step, streams, logits)
        self._stats.verify_steps += 1
        self._stats.verify_tokens += sum(batch.widths[: batch.live])
        return Verified(step, inputs, streams, logits.argmax(dim=-1))

    def _commit(self, running: Running, tokens: list[int]) -> None:
        """Takes the tokens that a verify of the row accepted; one that goes on has committed as many."""
        running.accepted.append(len(tokens))
        self._stats.accepted[len(tokens)] += 1
        self._stats.emitted_tokens += running.take(tokens, self._eos, self._max_context_len)
        if not running.finish_reason:
            running.committed += len(tokens)

    def _tokens(self, lists: list[list[int]]) -> Tensor:
        return self._builder.ints([token for tokens in lists for token in tokens]).long()


def accept(verified: Verified) -> tuple[Tensor, Tensor]:
    """Accepted length of every row ``[B]``, and the target's greedy tokens after each of its inputs ``[B, Q]``.

    A guess is accepted when it is the target's greedy token after the input before it, and all guesses before it are.
    The two are all that a scheduler reads of a step's results.
    """
    step, inputs, greedy = verified.step, verified.inputs, verified.greedy
    padded = step.pad(greedy)
    offsets = torch.arange(1, step.max_width, device=greedy.device)
    right = (padded[:, :-1] == inputs[:, 1:]) & (offsets < step.metadata.seqused[:, None])
    return right.long().cumprod(dim=1).sum(dim=1) + 1, padded

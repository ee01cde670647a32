"""Continuous batching of DeepSeek-V4 with MTP on the six pools: ragged prefill chunks, draft, verify, draft extend."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DeepseekV4ForCausalLM

from dsv4_npu_ops import KVAllocator, KVLayout, PoolExhausted, RequestTables
from dsv4_npu_ops.mtp.batch import Batch, StepBuilder
from dsv4_npu_ops.mtp.drafter import Drafter, MtpDrafter, Script, ScriptedDrafter
from dsv4_npu_ops.mtp.nextn import NextnLayer
from dsv4_npu_ops.mtp.pools import KVPools
from dsv4_npu_ops.mtp.scheduler import Admission, Request, Running, Scheduler
from dsv4_npu_ops.mtp.stats import RunStats
from dsv4_npu_ops.mtp.step import Step
from dsv4_npu_ops.mtp.target import PagedTarget

Observer = Callable[[list[Running], Step, Tensor, Tensor], None]
"""``observer(rows, step, streams, logits)`` after every target forward; logits ``[T, V]``, in prefill ``[B, V]``."""


@dataclass(frozen=True)
class Completion:
    """What a request got: new tokens, why it ended, and the accepted length of each of its verifies."""

    tokens: list[int]
    finish_reason: str
    accepted: list[int]


class Runner:
    """Generates greedily for many requests at once.

    Args:
        model: the target, transformers' DeepSeek-V4 in eval mode.
        nextn: its MTP layer; may be None for plain decoding or a scripted drafter.
        layout: page size, window, rows, longest context, pages.
        bucket: verify batches are filled up with padding rows to a multiple of this many rows, as a captured graph's
            batch would be.
        fill: initial content of the pools, see ``KVPools``.

    Raises:
        ValueError: the layout's window is not the model's.
    """

    def __init__(
        self,
        model: DeepseekV4ForCausalLM,
        nextn: NextnLayer | None,
        layout: KVLayout,
        *,
        bucket: int = 1,
        fill: float = 0.0,
    ) -> None:
        if layout.sliding_window != model.config.sliding_window:
            raise ValueError(
                f"layout.sliding_window: expected the model's {model.config.sliding_window}, "
                f"got {layout.sliding_window}"
            )
        self._model, self._nextn, self._layout, self._bucket = model, nextn, layout, bucket
        self.tables = RequestTables(layout)
        self.allocator = KVAllocator(layout, self.tables)
        self.pools = KVPools(model.config, layout, model.lm_head.weight.dtype, fill=fill)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int | Sequence[int],
        num_draft_tokens: int | Sequence[int] = 1,
        chunk_size: int | Sequence[int] | None = None,
        *,
        arrivals: Sequence[int] | None = None,
        admission: Admission = "reserved",
        eos_token_ids: Sequence[int] = (),
        script: Script | None = None,
        observer: Observer | None = None,
        progress: Callable[[RunStats], None] | None = None,
    ) -> tuple[list[Completion], RunStats]:
        """Continues every prompt with the target's greedy tokens.

        Args:
            prompts: token ids, one list a request.
            max_new_tokens, num_draft_tokens, chunk_size: one number, or one per request. ``num_draft_tokens`` is n, the
                tokens per verify (1 decodes without guesses); a chunk size of None prefills the whole prompt at once.
            arrivals: scheduler round in which each request shows up; default all at the start.
            admission: ``reserved`` or ``optimistic``, see ``Scheduler``. The tokens are the same.
            eos_token_ids: tokens that end a request.
            script: replaces the guesses, the MTP layer's if there is one; the layer still runs.
            observer: called after every target forward.
            progress: called with the running statistics after every round.

        Returns:
            completions in the order of the prompts, and the run's statistics.

        Raises:
            ValueError: a request could never run, or guesses are asked for and there is no MTP layer.
        """
        count = len(prompts)
        whole = self._layout.max_context_len
        requests = [
            Request(i, list(prompt), new_tokens, draft_tokens, chunk, arrival)
            for i, (prompt, new_tokens, draft_tokens, chunk, arrival) in enumerate(
                zip(
                    prompts,
                    _per_request("max_new_tokens", max_new_tokens, count),
                    _per_request("num_draft_tokens", num_draft_tokens, count),
                    _per_request("chunk_size", whole if chunk_size is None else chunk_size, count),
                    _per_request("arrivals", 0 if arrivals is None else arrivals, count),
                    strict=True,
                )
            )
        ]
        scheduler = Scheduler(self._layout, requests, admission)
        stats = RunStats(total_pages=dict(self._layout.num_pages))
        builder = StepBuilder(self._model.config, self.tables, self._layout, stats.ops)
        drafter = self._drafter(requests, script, builder, stats)
        run = _Run(self, stats, builder, drafter, frozenset(eos_token_ids), observer)
        completions: dict[int, Completion] = {}
        rounds = 0
        while scheduler.unfinished:
            scheduler.admit(rounds, self._free_pages())
            rounds += 1
            stats.peak_running = max(stats.peak_running, len(scheduler.running))
            for phase, wanted in ((run.prefill, True), (run.verify, False)):
                batch = _step_that_fits(run, phase, scheduler, wanted)
                if not batch:
                    continue
                stats.observe_pools(self._free_pages())
                finished = [running for running in batch if running.finish_reason]
                if finished:
                    run.free([running.row for running in finished])
                    scheduler.release(finished)
                for running in finished:
                    completions[running.request.index] = Completion(
                        running.generated, running.finish_reason or "", running.accepted
                    )
            if progress is not None:
                progress(stats)
        stats.observe_pools(self._free_pages())
        return [completions[i] for i in range(count)], stats

    def _free_pages(self) -> dict[str, int]:
        return {pool: self.allocator.available_pages(pool) for pool in self._layout.num_pages}

    def _drafter(
        self, requests: list[Request], script: Script | None, builder: StepBuilder, stats: RunStats
    ) -> Drafter | None:
        drafter: Drafter | None = None
        if any(request.num_draft_tokens > 1 for request in requests):
            if self._nextn is not None:
                drafter = MtpDrafter(self._nextn, self.pools.nextn, builder, self._layout.max_requests, stats)
            elif script is None:
                raise ValueError("num_draft_tokens: expected 1 for a runner without an MTP layer or script, got more")
        return drafter if script is None else ScriptedDrafter(script, drafter)


def _per_request(name: str, value: int | Sequence[int], count: int) -> list[int]:
    values = [value] * count if isinstance(value, int) else list(value)
    if len(values) != count:
        raise ValueError(f"{name}: expected one value, or one for each of {count} prompts, got {len(values)}")
    return values


def _step_that_fits(
    run: "_Run", phase: Callable[[list[Running]], None], scheduler: Scheduler, prefilling: bool
) -> list[Running]:
    """One step of all rows that prefill, or of all that do not; retracts the youngest requests until it fits."""
    while batch := [running for running in scheduler.running if running.prefilling is prefilling]:
        try:
            phase(batch)
            return batch
        except PoolExhausted:
            # A phase allocates first, so nothing has happened yet.
            youngest = scheduler.retractable
            if youngest is None:
                raise
            run.retract(youngest)
            scheduler.retract(youngest)
    return []


class _Run:
    """The steps of one ``generate`` call."""

    def __init__(
        self,
        runner: Runner,
        stats: RunStats,
        builder: StepBuilder,
        drafter: Drafter | None,
        eos: frozenset[int],
        observer: Observer | None,
    ) -> None:
        layout, clock = runner._layout, stats.ops
        self._stats, self._eos, self._observer = stats, eos, observer
        self._max_context_len, self._bucket = layout.max_context_len, runner._bucket
        self._builder, self._drafter = builder, drafter
        self._target = PagedTarget(runner._model, runner.pools, builder.apply_rotary)
        self._alloc_extend = clock.wrap(runner.allocator.alloc_extend, "alloc_extend")
        self._reserve_extend = clock.wrap(runner.allocator.reserve_extend, "reserve_extend")
        self._evict = clock.wrap(runner.allocator.evict, "evict")
        self.free = clock.wrap(runner.allocator.free, "free")

    def retract(self, running: Running) -> None:
        """Frees the row of a request that will be prefilled again."""
        self.free([running.row])
        self._stats.retractions += 1
        self._stats.recomputed_tokens += running.committed

    def prefill(self, rows: list[Running]) -> None:
        """One chunk of every row's prompt; rows whose prompt is done get their first token, unless they had one."""
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
        for running, final, token in zip(rows, finals, sampled.tolist(), strict=True):
            running.committed = final
            if not running.prefilling and not running.generated:
                self._stats.emitted_tokens += running.take([token], self._eos, self._max_context_len)

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
        step = self._builder.verify(batch)
        newest = self._builder.ints([running.generated[-1] for running in rows] + [0] * (len(batch.rows) - len(rows)))
        inputs = newest.long()[:, None]
        if self._drafter is not None and batch.max_width > 1:
            histories = [(running.request.index, running.generated) for running in rows]
            inputs = torch.cat([inputs, self._drafter.propose(batch, step, histories)], dim=1)
        step.token_ids = step.unpad(inputs)
        streams = self._target(step)
        logits = self._target.logits(streams)
        if self._observer is not None:
            self._observer(rows, step, streams, logits)
        greedy = logits.argmax(dim=-1)
        accepted, tokens = _accept(step, inputs, greedy)
        self._stats.verify_steps += 1
        self._stats.verify_tokens += sum(widths)
        kept = []
        for i, running in enumerate(rows):
            running.accepted.append(accepted[i])
            self._stats.accepted[accepted[i]] += 1
            self._stats.emitted_tokens += running.take(tokens[i][: accepted[i]], self._eos, self._max_context_len)
            if not running.finish_reason:
                running.committed += accepted[i]
                kept.append(i)
        if kept:
            if self._drafter is not None:
                self._drafter.after_verify(batch, step, streams, greedy, kept, accepted)
            self._evict([rows[i].row for i in kept], [rows[i].committed for i in kept])

    def _tokens(self, lists: list[list[int]]) -> Tensor:
        return self._builder.ints([token for tokens in lists for token in tokens]).long()


def _accept(step: Step, inputs: Tensor, greedy: Tensor) -> tuple[list[int], list[list[int]]]:
    """Accepted length of every row, and the target's greedy tokens after each of its inputs.

    A guess is accepted when it is the target's greedy token after the input before it, and all guesses before it are.
    The two lists are the scheduler's only read of a step's results.
    """
    padded = step.pad(greedy)
    offsets = torch.arange(1, step.max_width, device=greedy.device)
    right = (padded[:, :-1] == inputs[:, 1:]) & (offsets < step.metadata.seqused[:, None])
    accepted = right.long().cumprod(dim=1).sum(dim=1) + 1
    return accepted.tolist(), padded.tolist()

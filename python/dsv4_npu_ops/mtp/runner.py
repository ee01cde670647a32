"""Continuous batching of DeepSeek-V4 with MTP on the six pools: ragged prefill chunks, draft, verify, draft extend."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformers import DeepseekV4ForCausalLM

from dsv4_npu_ops import KVAllocator, KVLayout, PoolExhausted, RequestTables
from dsv4_npu_ops.mtp.batch import StepBuilder
from dsv4_npu_ops.mtp.drafter import (
    DeviceScript,
    DeviceScriptedDrafter,
    Drafter,
    MtpDrafter,
    Script,
    ScriptedDrafter,
)
from dsv4_npu_ops.mtp.nextn import NextnLayer
from dsv4_npu_ops.mtp.overlapped import STEPS_IN_FLIGHT, OverlappedRun
from dsv4_npu_ops.mtp.pools import KVPools
from dsv4_npu_ops.mtp.prefix import start_on_prefix
from dsv4_npu_ops.mtp.run import Observer, Run
from dsv4_npu_ops.mtp.scheduler import Admission, Request, Running, Scheduler
from dsv4_npu_ops.mtp.stats import RunStats
from dsv4_npu_ops.mtp.target import PagedTarget


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
        layout: page size, window, rows, longest context, pages, and the device of the bookkeeping; the model may be
            elsewhere, each step's tensors are then copied to it.
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
        weight = model.lm_head.weight
        self.pools = KVPools(model.config, layout, weight.dtype, device=weight.device, fill=fill)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int | Sequence[int],
        num_draft_tokens: int | Sequence[int] = 1,
        chunk_size: int | Sequence[int] | None = None,
        *,
        arrivals: Sequence[int] | None = None,
        admission: Admission = "reserved",
        overlap: bool = False,
        share_prefixes: bool = False,
        eos_token_ids: Sequence[int] = (),
        script: Script | None = None,
        device_script: DeviceScript | None = None,
        observer: Observer | None = None,
        progress: Callable[[RunStats], None] | None = None,
        make_run: Callable[..., Run] | None = None,
    ) -> tuple[list[Completion], RunStats]:
        """Continues every prompt with the target's greedy tokens.

        Args:
            prompts: token ids, one list a request.
            max_new_tokens, num_draft_tokens, chunk_size: one number, or one per request. ``num_draft_tokens`` is n, the
                tokens per verify (1 decodes without guesses); a chunk size of None prefills the whole prompt at once.
            arrivals: scheduler round in which each request shows up; default all at the start.
            admission: ``reserved`` or ``optimistic``, see ``Scheduler``. The tokens are the same.
            overlap: launches every step before the results of the one before are read. The tokens are the same;
                accepted lengths may differ near the longest context. With the model on another device than the layout
                each copy between them waits, so that the order is kept but no time gained.
            share_prefixes: a request starts on the cached pages of the running one with which it has most tokens in
                common, and prefills the rest. The tokens are the same.
            eos_token_ids: tokens that end a request.
            script: replaces the guesses, the MTP layer's if there is one; the layer still runs.
                Not with ``overlap``, where the host does not know what it is given.
            device_script: the same with values on the device, in either mode.
            observer: called after every target forward. With ``overlap`` its rows are what the host knows by then.
            progress: called with the running statistics after every round.
            make_run: builds the run from ``Run``'s arguments, for workers that share the work with others
                (``dsv4_npu_ops.disagg``); default by ``overlap``.

        Returns:
            completions in the order of the prompts, and the run's statistics.

        Raises:
            ValueError: a request could never run; guesses are asked for and there is no MTP layer; two scripts, or one
                that overlapping does not allow.
        """
        if script is not None and (overlap or device_script is not None):
            raise ValueError("script: expected None with overlap or device_script, got a script")
        count = len(prompts)
        whole = self._layout.max_context_len
        requests = [
            Request(i, list(prompt), new_tokens, draft_tokens, chunk, arrival, STEPS_IN_FLIGHT if overlap else 1)
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
        builder = StepBuilder(
            self._model.config,
            self.tables,
            self._layout,
            stats.ops,
            self._model.lm_head.weight.device,
            max_rows=self._layout.max_requests + -self._layout.max_requests % self._bucket,
            draft_steps=max((request.num_draft_tokens for request in requests), default=0) - 2,
        )
        drafter = self._drafter(requests, script, device_script, builder, stats)
        if make_run is None:
            make_run = OverlappedRun if overlap else Run
        run = make_run(
            self._layout,
            self.allocator,
            PagedTarget(self._model, self.pools, builder.apply_rotary),
            builder,
            drafter,
            stats,
            eos=frozenset(eos_token_ids),
            observer=observer,
            bucket=self._bucket,
        )
        share_prefix = stats.ops.wrap(self.allocator.share_prefix, "share_prefix")
        completions: dict[int, Completion] = {}
        rounds = 0
        while scheduler.unfinished:
            for admitted in scheduler.admit(rounds, self._free_pages()):
                if share_prefixes:
                    stats.shared_tokens += start_on_prefix(
                        admitted, scheduler.running, self.allocator, share_prefix, self.pools
                    )
            rounds += 1
            stats.peak_running = max(stats.peak_running, len(scheduler.running))
            for phase, wanted in ((run.prefill, True), (run.verify, False)):
                if not _step_that_fits(run, phase, scheduler, wanted):
                    continue
                stats.observe_pools(self._free_pages())
                finished = [running for running in scheduler.running if running.finish_reason]
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

    @property
    def has_mtp_layer(self) -> bool:
        """Whether it can draft."""
        return self._nextn is not None

    def _free_pages(self) -> dict[str, int]:
        return {pool: self.allocator.available_pages(pool) for pool in self._layout.num_pages}

    def _drafter(
        self,
        requests: list[Request],
        script: Script | None,
        device_script: DeviceScript | None,
        builder: StepBuilder,
        stats: RunStats,
    ) -> Drafter | None:
        drafter: Drafter | None = None
        if any(request.num_draft_tokens > 1 for request in requests):
            if self._nextn is not None:
                drafter = MtpDrafter(self._nextn, self.pools.nextn, builder, self._layout.max_requests, stats)
            elif script is None and device_script is None:
                raise ValueError("num_draft_tokens: expected 1 for a runner without an MTP layer or script, got more")
        if device_script is not None:
            return DeviceScriptedDrafter(device_script, drafter)
        return drafter if script is None else ScriptedDrafter(script, drafter)


def _per_request(name: str, value: int | Sequence[int], count: int) -> list[int]:
    values = [value] * count if isinstance(value, int) else list(value)
    if len(values) != count:
        raise ValueError(f"{name}: expected one value, or one for each of {count} prompts, got {len(values)}")
    return values


def _step_that_fits(run: Run, phase: Callable[[list[Running]], None], scheduler: Scheduler, prefilling: bool) -> bool:
    """One step of all rows that prefill, or of all that do not; retracts the youngest requests until it fits.

    Returns:
        whether there are such rows.
    """
    while batch := [running for running in scheduler.running if running.prefilling is prefilling]:
        try:
            phase(batch)
            return True
        except PoolExhausted:
            # A phase allocates first, so nothing has happened yet.
            youngest = scheduler.retractable
            if youngest is None:
                raise
            run.retract(youngest)
            scheduler.retract(youngest)
    return False

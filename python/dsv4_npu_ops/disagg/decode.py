"""The decode side: takes over requests that a prefill worker has prefilled, and decodes them speculatively."""

import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dsv4_npu_ops import RequestTables
from dsv4_npu_ops.disagg.channel import Channel, Message, decode_tensor, encode_pages
from dsv4_npu_ops.disagg.components import state_components
from dsv4_npu_ops.disagg.payloads import Payload, state_payloads
from dsv4_npu_ops.disagg.transfer import TransferEngine, TransferFailed
from dsv4_npu_ops.mtp.run import Run
from dsv4_npu_ops.mtp.runner import Completion, Runner
from dsv4_npu_ops.mtp.scheduler import Running
from dsv4_npu_ops.mtp.stats import RunStats


class PrefillLink:
    """A connection to a prefill worker, and the engine through which it writes into our pools.

    Args:
        channel: connected to the worker.
        engine: its own for this link, so that closing the link ends all writes of this worker.
        runner: whose pools it writes.
        timeout_s: longest silence of the worker while somebody waits for it.

    Raises:
        ComponentMismatch: the worker's pools are others.
        TransferFailed: it did not answer.
    """

    def __init__(self, channel: Channel, engine: TransferEngine, runner: Runner, timeout_s: float) -> None:
        self._channel, self._engine, self.timeout_s = channel, engine, timeout_s
        self.components = state_components(runner.pools)
        self.closed = ""
        try:
            engine.register(self.components)
            channel.greet(engine.session, self.components, timeout_s)
        except BaseException:
            self.close("the greeting failed")
            raise

    def order(self, running: Running, pages: Payload) -> None:
        """Asks for a prompt to be prefilled into ``pages``.

        Raises:
            TransferFailed: the link is closed.
        """
        self._check_open()
        self._channel.send(
            "order",
            id=running.request.index,
            prompt=running.prompt,
            chunk_size=running.chunk_size,
            pages=encode_pages(pages),
        )

    def answer(self, wait: bool) -> Message | None:
        """The worker's next answer; None when there is none and nobody waits.

        Raises:
            TransferFailed: the worker left, or was silent for too long.
        """
        self._check_open()
        message = self._channel.receive(self.timeout_s if wait else 0)
        if message is None and wait:
            raise TransferFailed(f"the prefill worker did not answer for {self.timeout_s} s")
        return message

    def close(self, reason: str) -> None:
        """Returns when the worker cannot write into our pools any more."""
        if not self.closed:
            self.closed = reason
            self._channel.close()
            self._engine.close()

    def _check_open(self) -> None:
        if self.closed:
            raise TransferFailed(self.closed)


class DecodeRun(Run):
    """A run whose prompts are prefilled elsewhere: what a request would prefill, it reserves, orders and waits for.

    A request whose transfer fails ends with the reason, and its reservation is freed like that of any request that
    ends. Before pages that a worker may still be writing are freed, its link is closed.

    Args:
        link: the prefill worker.
        tables: of the runner.
        others, options: see ``Run``.
    """

    def __init__(self, link: PrefillLink, tables: RequestTables, *others: Any, **options: Any) -> None:
        super().__init__(*others, **options)
        self._link, self._tables = link, tables
        self._ordered: dict[int, Running] = {}
        self._pages: dict[int, Payload] = {}
        self._decoding = False

    def prefill(self, rows: list[Running]) -> None:
        """Orders the prompts of new rows and takes over those that have arrived; waits for one if nobody decodes."""
        wait, self._decoding = not self._decoding, False
        try:
            self._order([running for running in rows if running.request.index not in self._ordered])
            while self._ordered and (answer := self._link.answer(wait)) is not None:
                self._take(answer)
                wait = False
        except TransferFailed as error:
            self._link.close(str(error))
            for running in self._ordered.values():
                running.finish_reason = f"transfer failed: {error}"
            self._ordered.clear()

    def verify(self, rows: list[Running]) -> None:
        """See ``Run.verify``."""
        self._decoding = True
        super().verify(rows)

    def _order(self, rows: list[Running]) -> None:
        if not rows:
            return
        lens = [len(running.prompt) for running in rows]
        tail = max(1, self._tables.sliding_window - 1)
        self._alloc_extend([running.row for running in rows], [0] * len(rows), lens, swa_tail=tail)
        self._ordered.update({running.request.index: running for running in rows})
        for running, length in zip(rows, lens, strict=True):
            pages = state_payloads(self._tables, running.row, length)
            self._pages[running.request.index] = pages
            self._link.order(running, pages)

    def _take(self, answer: Message) -> None:
        running = self._ordered.get(answer.get("id", -1))
        if running is None or answer["kind"] not in ("done", "refused"):
            raise TransferFailed(f"expected an answer to an open order, got {answer['kind']} of {answer.get('id')}")
        pages = self._pages.pop(running.request.index)
        if answer["kind"] == "refused":
            running.finish_reason = f"transfer refused: {answer.get('reason')}"
        else:
            expected = {component.type.value: len(pages[component.type]) for component in self._link.components}
            if answer.get("counts") != expected:
                raise TransferFailed(f"expected pages {expected} to be written, got {answer.get('counts')}")
            self._start(running, answer)
        del self._ordered[running.request.index]

    def _start(self, running: Running, answer: Message) -> None:
        """Puts the request where its prefill ended, MTP layer included."""
        if self._drafter is not None:
            try:
                streams = decode_tensor(answer["streams"]).to(self._tables.device)
                self._drafter.remember([running.row], streams)
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                raise TransferFailed(f"expected the MTP layer's streams of one token, got {error!r}") from error
        token = answer.get("token")
        if not isinstance(token, int):
            raise TransferFailed(f"expected the first token, got {token!r}")
        running.committed = len(running.prompt)
        self._stats.emitted_tokens += running.take([token], self._eos, self._max_context_len)


class DecodeWorker:
    """Generates like ``Runner``, with the prompts prefilled by a prefill worker.

    Args:
        runner: decodes; page numbers need not be the prefill worker's, page size and model do.
        make_engine: makes a transfer engine; one for each ``generate``.
        address: host and port of the prefill worker.
        timeout_s: longest silence of the prefill worker while nothing else can be done.

    Source: docs/spec.md, prefill-decode disaggregation.
    """

    def __init__(
        self,
        runner: Runner,
        make_engine: Callable[[], TransferEngine],
        address: tuple[str, int],
        *,
        timeout_s: float = 60.0,
    ) -> None:
        self._runner, self._make_engine, self._address, self._timeout_s = runner, make_engine, address, timeout_s

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int | Sequence[int],
        num_draft_tokens: int | Sequence[int] = 1,
        chunk_size: int | Sequence[int] | None = None,
        **options: Any,
    ) -> tuple[list[Completion], RunStats]:
        """See ``Runner.generate``; ``chunk_size`` is that of the prefill worker.

        A request whose prompt could not be taken over has no tokens, and a ``finish_reason`` that begins with
        ``transfer failed`` (the worker is lost, and so are later requests) or ``transfer refused`` (this one only).

        Raises:
            ComponentMismatch: the prefill worker's pools are others.
            TransferFailed: there is no prefill worker, or it did not greet.
            ValueError: as ``Runner.generate``; overlapped scheduling, shared prefixes or optimistic admission is asked
                for.
        """
        refused = options.get("overlap") or options.get("share_prefixes")
        if refused or options.get("admission", "reserved") != "reserved":
            raise ValueError(
                "generate: expected overlap False, share_prefixes False and admission 'reserved' on a decode worker"
            )
        try:
            connection = socket.create_connection(self._address, self._timeout_s)
        except OSError as error:
            raise TransferFailed(f"no prefill worker at {self._address}: {error}") from error
        connection.settimeout(None)
        link = PrefillLink(Channel(connection), self._make_engine(), self._runner, self._timeout_s)
        try:
            return self._runner.generate(
                prompts,
                max_new_tokens,
                num_draft_tokens,
                chunk_size,
                make_run=partial(DecodeRun, link, self._runner.tables),
                **options,
            )
        finally:
            link.close("the run is over")

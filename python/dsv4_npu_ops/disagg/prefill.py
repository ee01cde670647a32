"""The prefill side: prefills what a decode worker orders, and writes the pages into its pools."""

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from dsv4_npu_ops.disagg.channel import Channel, Message, decode_pages, encode_tensor
from dsv4_npu_ops.disagg.components import ComponentMismatch, StateComponent, state_components
from dsv4_npu_ops.disagg.payloads import page_copies, state_payloads
from dsv4_npu_ops.disagg.transfer import ChannelClosed, TransferEngine, TransferFailed
from dsv4_npu_ops.mtp.drafter import MtpDrafter
from dsv4_npu_ops.mtp.run import Run
from dsv4_npu_ops.mtp.runner import Runner
from dsv4_npu_ops.mtp.scheduler import Request, Running, Scheduler


class PrefillRun(Run):
    """A run whose requests end with their first token; each is handed over while it still owns its pages.

    Args:
        hand_over: called with a prefilled request and the drafter that holds its MTP state.
        others, options: see ``Run``.
    """

    def __init__(self, hand_over: Callable[[Running, MtpDrafter | None], None], *others: Any, **options: Any) -> None:
        super().__init__(*others, **options)
        self._hand_over = hand_over

    def prefill(self, rows: list[Running]) -> None:
        """See ``Run.prefill``."""
        super().prefill(rows)
        drafter = self._drafter if isinstance(self._drafter, MtpDrafter) else None
        for running in rows:
            if not running.prefilling:
                self._hand_over(running, drafter)


class PrefillWorker:
    """Serves decode workers one after another with a runner's target and MTP layer.

    Args:
        runner: its pools are registered with the engine and must live as long.
        engine: writes into the decode workers' pools.

    Raises:
        TransferFailed: the engine refused the pools.

    Source: docs/spec.md, prefill-decode disaggregation.
    """

    def __init__(self, runner: Runner, engine: TransferEngine) -> None:
        self._runner, self._engine = runner, engine
        self._components = state_components(runner.pools)
        engine.register(self._components)

    def serve(self, connection: socket.socket, *, greeting_timeout_s: float = 30.0) -> int:
        """Does the orders of one decode worker until it closes the connection. Orders that have arrived together are
        prefilled together.

        Args:
            connection: a connected socket; closed on return.
            greeting_timeout_s: how long the other end may take to say what its pools are.

        Returns:
            orders that were done.

        Raises:
            ComponentMismatch: the decode worker's pools are others.
            TransferFailed: a write failed, or it sent no orders; the runner's pools are whole.
        """
        channel = Channel(connection)
        try:
            session, components = channel.greet(self._engine.session, self._components, greeting_timeout_s)
            peer = _Peer(self, channel, session, components)
            while orders := _arrived(channel):
                peer.fulfil(orders)
            return peer.done
        finally:
            channel.close()


def _arrived(channel: Channel) -> list[Message]:
    """Waits for an order, and takes all that are there; nothing when the decode worker has left."""
    orders: list[Message] = []
    try:
        message = channel.receive()
        while message is not None:
            if message["kind"] != "order" or not {"id", "prompt", "chunk_size", "pages"} <= message.keys():
                raise TransferFailed(f"expected an order, got {message['kind']} with {', '.join(message)}")
            orders.append(message)
            message = channel.receive(0)
    except ChannelClosed:
        return []
    return orders


class _Peer:
    """One decode worker, as the prefill worker knows it."""

    def __init__(self, worker: PrefillWorker, channel: Channel, session: str, components: list[StateComponent]) -> None:
        self._runner, self._engine, self._ours = worker._runner, worker._engine, worker._components
        self._channel, self._session, self._theirs = channel, session, components
        self._orders: list[Message] = []
        self.done = 0

    def fulfil(self, orders: list[Message]) -> None:
        """Prefills and hands over; refuses what cannot be."""
        layout, width = self._runner.allocator.layout, 2 if self._runner.has_mtp_layer else 1
        self._orders = []
        for order in orders:
            try:
                Scheduler(layout, [Request(order["id"], order["prompt"], 1, width, order["chunk_size"])])
            except ValueError as error:
                self._channel.send("refused", id=order["id"], reason=str(error))
            else:
                self._orders.append(order)
        if not self._orders:
            return
        # A peer that is lost on the way must not keep pages.
        before = self._runner.allocator.backup_state()
        try:
            self._runner.generate(
                [order["prompt"] for order in self._orders],
                1,
                width,
                [order["chunk_size"] for order in self._orders],
                make_run=partial(PrefillRun, self._hand_over),
            )
        except BaseException:
            self._runner.allocator.restore_state(before)
            raise
        self._runner.allocator.discard_state(before)

    def _hand_over(self, running: Running, drafter: MtpDrafter | None) -> None:
        order = self._orders[running.request.index]
        try:
            pages = state_payloads(self._runner.tables, running.row, running.committed)
            copies = page_copies(self._ours, self._theirs, pages, decode_pages(order["pages"]))
        except ComponentMismatch as error:
            self._channel.send("refused", id=order["id"], reason=str(error))
            return
        self._engine.write(self._session, copies)
        self._channel.send(
            "done",
            id=order["id"],
            token=running.generated[0],
            counts={component.type.value: len(pages[component.type]) for component in self._ours},
            streams=encode_tensor(drafter.recall([running.row])) if drafter is not None else None,
        )
        self.done += 1

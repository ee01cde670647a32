"""Prompts prefilled in one process and decoded speculatively in another, over Mooncake on loopback."""

import os
import queue
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from transfer.served_model import FOLDER, make_models, make_runner

from dsv4_npu_ops.disagg import ComponentMismatch, StateType, state_components
from dsv4_npu_ops.disagg.channel import Channel, encode_pages
from dsv4_npu_ops.disagg.decode import DecodeWorker
from dsv4_npu_ops.disagg.transfer import TransferFailed
from dsv4_npu_ops.layout import POOLS

HERE = Path(__file__).parent
NEW_TOKENS, DRAFT_TOKENS, CHUNK = 14, 4, 67
LENGTHS = (3, 258, 130, 128, 417)


class Process:
    """A running prefill worker."""

    def __init__(self, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        command = [sys.executable, str(HERE / "prefill_process.py"), *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, once it does."""
        while not (line := self.next_line()).strip().isdigit():
            assert line, "the prefill process ended before it listened"
        return "127.0.0.1", int(line)

    def next_line(self) -> str:
        """The next line that it prints, an empty one when it has ended."""
        return self._lines.get(timeout=180)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def processes():
    """Two prefill workers, one of which dies after three copies of its first transfer; they start side by side."""
    running = Process(), Process("3")
    yield running
    for process in running:
        process.end()


@pytest.fixture(scope="module")
def models():
    return make_models()


@pytest.fixture(scope="module")
def healthy(processes, models):
    return processes[0], processes[0].address


@pytest.fixture(scope="module")
def prompts():
    text = (FOLDER / "model.py").read_bytes()
    return [list(text[10 * length : 11 * length]) for length in LENGTHS]


@pytest.fixture(scope="module")
def alone(models, prompts):
    """What one process generates."""
    return make_runner(models).generate(prompts, NEW_TOKENS, DRAFT_TOKENS, CHUNK)[0]


def shuffled_runner(models):
    """A runner whose free pages are in another order than those of a fresh one."""
    runner = make_runner(models)
    allocator = runner.allocator
    allocator.alloc_extend([0, 1], [0, 0], [200, 333])
    allocator.free([1])
    allocator.free([0])
    return runner


def worker(runner, address, **options):
    from dsv4_npu_ops.disagg.mooncake import MooncakeEngine

    return DecodeWorker(runner, MooncakeEngine, address, **options)


def assert_whole(runner):
    for pool in POOLS:
        assert runner.allocator.available_pages(pool) == runner.tables.layout.num_pages[pool]
        assert torch.count_nonzero(runner.tables.table(pool)) == 0


def test_tokens_and_accepted_lengths_are_those_of_one_process(models, prompts, alone, healthy):
    runner = shuffled_runner(models)
    prefix = runner.allocator.alloc_extend([0], [0], [1]).out_full_loc
    assert prefix.item() // 16 != 1, "the pages should have other numbers than in the prefill process"
    runner.allocator.free([0])
    completions, stats = worker(runner, healthy[1]).generate(prompts, NEW_TOKENS, DRAFT_TOKENS, CHUNK)
    assert completions == alone
    assert stats.prefill_steps == 0 and stats.tokens_per_step() > 1.2
    assert stats.peak_running == 2
    assert_whole(runner)


def test_plain_decoding_and_an_early_end_need_no_guesses(models, prompts, alone, healthy):
    runner = make_runner(models)
    eos = alone[1].tokens[0]
    completions, _ = worker(runner, healthy[1]).generate(prompts[:2], NEW_TOKENS, 1, None, eos_token_ids=[eos])
    expected = alone[0].tokens
    assert completions[0].tokens == (expected[: expected.index(eos) + 1] if eos in expected else expected)
    assert (completions[1].tokens, completions[1].finish_reason) == ([eos], "eos")
    assert_whole(runner)


def test_a_sender_that_dies_in_a_transfer_leaves_the_pools_whole(models, prompts, alone, processes, healthy):
    runner = shuffled_runner(models)
    address = processes[1].address
    completions, _ = worker(runner, address).generate(prompts, NEW_TOKENS, DRAFT_TOKENS, CHUNK)
    assert [completion.tokens for completion in completions] == [[]] * len(prompts)
    assert all(completion.finish_reason.startswith("transfer failed: ") for completion in completions)
    assert "clos" in completions[0].finish_reason or "broke" in completions[0].finish_reason
    assert_whole(runner)
    with pytest.raises(TransferFailed, match="no prefill worker at"):
        worker(runner, address).generate(prompts, NEW_TOKENS)
    # Another worker takes over where it wrote.
    assert worker(runner, healthy[1]).generate(prompts, NEW_TOKENS, DRAFT_TOKENS, CHUNK)[0] == alone


def test_other_pools_are_refused_by_both_ends_before_anything_is_reserved(models, prompts, healthy):
    runner = make_runner(models, page_size=32)
    with pytest.raises(ComponentMismatch, match="component swa: expected pages of"):
        worker(runner, healthy[1]).generate(prompts, NEW_TOKENS)
    assert healthy[0].next_line().startswith("ComponentMismatch: component swa: expected pages of")
    assert_whole(runner)


def test_a_wrong_number_of_pages_is_refused_and_the_next_order_done(models, prompts, alone, healthy, monkeypatch):
    from dsv4_npu_ops.disagg import decode

    runner = make_runner(models)
    honest = decode.state_payloads

    def one_page_short(tables, row, length):
        pages = honest(tables, row, length)
        if length == LENGTHS[1]:
            pages[StateType.C4_STATE].pop()
        return pages

    monkeypatch.setattr(decode, "state_payloads", one_page_short)
    completions, _ = worker(runner, healthy[1]).generate(prompts, NEW_TOKENS, DRAFT_TOKENS, CHUNK)
    assert completions[1].tokens == []
    assert completions[1].finish_reason.startswith("transfer refused: component c4_state: expected ")
    assert [*completions[:1], *completions[2:]] == [*alone[:1], *alone[2:]]
    assert_whole(runner)


def test_a_prompt_that_the_prefill_worker_cannot_hold_is_refused(models, prompts, healthy):
    runner = make_runner(models, max_context_len=1280)
    completions, _ = worker(runner, healthy[1]).generate([prompts[4] * 2, prompts[0]], 3)
    assert (
        completions[0].finish_reason
        == "transfer refused: prompts[0]: expected 1 to 639 tokens (max_context_len - 1), got 834"
    )
    assert [len(completion.tokens) for completion in completions] == [0, 3]
    assert_whole(runner)


def test_a_receiver_that_is_lost_costs_the_sender_nothing(models, prompts, alone, healthy):
    """Three receivers leave whose memory cannot be reached; the sender's pools hold no more than two requests."""
    process, address = healthy
    components = state_components(make_runner(models).pools)
    pages = encode_pages({kind: [1] for kind in StateType} | {StateType.C128: []})
    for _ in range(3):
        channel = Channel(socket.create_connection(address))
        channel.greet("127.0.0.1:1", components, 30)
        for number in range(2):
            channel.send("order", id=number, prompt=prompts[1][:16], chunk_size=CHUNK, pages=pages)
        with pytest.raises(TransferFailed, match=r"closed|broke"):
            channel.receive(30)
        channel.close()
        assert re.match(r"TransferFailed: .* to 127\.0\.0\.1:1 returned -1, .*; 0 pages owned$", process.next_line())
    assert worker(make_runner(models), address).generate(prompts, NEW_TOKENS, DRAFT_TOKENS, CHUNK)[0] == alone


class FalseSender:
    """The other end of a control channel, played by a thread: greets well, then answers an order as it is told."""

    def __init__(self, runner, answer) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._components, self._answer = state_components(runner.pools), answer
        self._thread = threading.Thread(target=self._play)
        self._thread.start()

    def _play(self) -> None:
        channel = Channel(self._listener.accept()[0])
        try:
            channel.greet("127.0.0.1:1", self._components, 30)
            order = channel.receive(30)
            self._answer(channel, order)
            while channel.receive(30) is not None:
                pass
        except TransferFailed:
            pass
        finally:
            channel.close()

    def join(self) -> None:
        self._thread.join(30)
        self._listener.close()
        assert not self._thread.is_alive()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda c, o: c.send("done", id=o["id"], token=1, counts={"swa": 1}), "expected pages .* got {'swa': 1}"),
        (lambda c, o: c.send("done", id=99, token=1), "expected an answer to an open order, got done of 99"),
        (lambda c, o: c.send("nonsense", id=o["id"]), "expected an answer to an open order, got nonsense"),
        (lambda c, o: c.close(), "clos|broke"),
        (lambda c, o: None, "did not answer for 1"),
    ],
    ids=["wrong counts", "unknown order", "unknown message", "leaves", "silent"],
)
def test_a_sender_that_breaks_the_protocol_costs_its_requests_only(models, prompts, answer, reason):
    runner = make_runner(models)
    sender = FalseSender(runner, answer)
    try:
        completions, _ = worker(runner, sender.address, timeout_s=1.0).generate(prompts[:3], NEW_TOKENS, DRAFT_TOKENS)
    finally:
        sender.join()
    for completion in completions:
        assert completion.tokens == []
        assert completion.finish_reason.startswith("transfer failed: ")
    assert re.search(reason, completions[0].finish_reason)
    assert_whole(runner)


def test_the_link_is_closed_before_pages_that_a_worker_may_still_write_are_freed(models, prompts):
    from dsv4_npu_ops.disagg.mooncake import MooncakeEngine

    runner = make_runner(models)
    owned_at_close = []

    class WatchedEngine(MooncakeEngine):
        def close(self) -> None:
            owned_at_close.append(runner.tables.layout.num_pages["full"] - runner.allocator.available_pages("full"))
            super().close()

    sender = FalseSender(runner, lambda c, o: None)
    try:
        DecodeWorker(runner, WatchedEngine, sender.address, timeout_s=1.0).generate(prompts[:2], NEW_TOKENS)
    finally:
        sender.join()
    assert len(owned_at_close) == 1 and owned_at_close[0] > 0
    assert_whole(runner)


def test_an_unknown_component_is_refused(models, prompts):
    runner = make_runner(models)
    listener = socket.create_server(("127.0.0.1", 0))

    def play() -> None:
        channel = Channel(listener.accept()[0])
        unknown = {"type": "mamba", "data_ptrs": [], "data_lens": [], "item_lens": []}
        channel.send("hello", protocol=1, session="127.0.0.1:1", components=[unknown])
        channel.close()

    thread = threading.Thread(target=play)
    thread.start()
    with pytest.raises(ComponentMismatch, match=r"expected types among swa, .* got 'mamba'"):
        worker(runner, listener.getsockname()).generate(prompts[:1], NEW_TOKENS)
    thread.join(30)
    listener.close()
    assert_whole(runner)


def test_a_decode_worker_reserves_for_whole_lives_and_reads_every_step(models, prompts):
    for options in ({"overlap": True}, {"share_prefixes": True}, {"admission": "optimistic"}):
        with pytest.raises(ValueError, match="expected overlap False, share_prefixes False and admission 'reserved'"):
            worker(make_runner(models), ("127.0.0.1", 1)).generate(prompts, 1, **options)

"""Control messages: what arrives is what was sent, whatever the pieces, and what is refused."""

import socket
from dataclasses import replace

import pytest
import torch

from dsv4_npu_ops.disagg import ComponentMismatch, StateComponent, StateType, TransferFailed
from dsv4_npu_ops.disagg.channel import Channel, decode_pages, decode_tensor, encode_pages, encode_tensor

COMPONENT = StateComponent(StateType.SWA, (1 << 47,), (640,), (64,))


@pytest.fixture
def ends():
    pair = socket.socketpair()
    yield Channel(pair[0]), Channel(pair[1]), pair[0]
    for end in pair:
        end.close()


def test_messages_arrive_in_order_and_in_pieces(ends):
    sender, receiver, raw = ends
    assert receiver.receive(0) is None
    raw.sendall(b'{"kind": "order", "id')
    assert receiver.receive(0.01) is None
    raw.sendall(b'": 3}\n{"kind": "done"}\n{"ki')
    assert receiver.receive(1) == {"kind": "order", "id": 3}
    assert receiver.receive(0) == {"kind": "done"}
    assert receiver.receive(0) is None
    raw.sendall(b'nd": "x"}\n')
    assert receiver.receive(1) == {"kind": "x"}
    sender.send("order", prompt=list(range(20_000)))
    assert receiver.receive(1)["prompt"] == list(range(20_000))


@pytest.mark.parametrize("line", [b"hello\n", b"[1]\n", b'{"id": 1}\n', b"\xff\n"])
def test_something_else_than_a_message_is_refused(ends, line):
    ends[2].sendall(line)
    with pytest.raises(TransferFailed, match="sent no message"):
        ends[1].receive(1)


def test_a_closed_channel_is_noticed_by_both_ends(ends):
    sender, receiver, _ = ends
    sender.send("done", id=1)
    sender.close()
    assert receiver.receive(1) == {"kind": "done", "id": 1}
    with pytest.raises(TransferFailed, match="closed the control channel"):
        receiver.receive(1)
    with pytest.raises(TransferFailed, match="broke"):
        sender.receive(1)
    with pytest.raises(TransferFailed, match="broke"):
        for _ in range(100):
            receiver.send("done", data="x" * 10_000)


def test_a_greeting_tells_session_and_components(ends):
    sender, receiver, _ = ends
    theirs = replace(COMPONENT, data_ptrs=(7,), data_lens=(1280,))
    sender.send(
        "hello", protocol=1, session="host:1", components=[{"type": "swa", "data_ptrs": [7], "data_lens": [1280],
                                                            "item_lens": [64]}]
    )  # fmt: skip
    assert receiver.greet("host:2", [COMPONENT], 1) == ("host:1", [theirs])
    hello = sender.receive(1)
    assert hello["session"] == "host:2" and hello["components"][0]["data_ptrs"] == [1 << 47]


@pytest.mark.parametrize(
    ("hello", "error", "message"),
    [
        (None, TransferFailed, "within 0.1 s, got nothing"),
        ({"kind": "done"}, TransferFailed, "got done of protocol None"),
        ({"kind": "hello", "protocol": 2}, TransferFailed, "got hello of protocol 2"),
        ({"kind": "hello", "protocol": 1}, TransferFailed, "expected a session and components"),
        (
            {"kind": "hello", "protocol": 1, "session": "s", "components": [{"type": "swa"}]},
            TransferFailed,
            "expected a session and components",
        ),
        ({"kind": "hello", "protocol": 1, "session": "s", "components": []}, ComponentMismatch, "got none"),
    ],
)
def test_another_greeting_is_refused(ends, hello, error, message):
    if hello is not None:
        ends[0].send(**hello)
    with pytest.raises(error, match=message):
        ends[1].greet("host:2", [COMPONENT], 0.1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_tensors_arrive_to_the_bit(dtype):
    tensor = torch.randn(1, 3, 5).to(dtype)
    tensor[0, 0, :3] = torch.tensor([float("nan"), -0.0, float("inf")])
    received = decode_tensor(encode_tensor(tensor))
    assert received.dtype == dtype and received.shape == tensor.shape
    assert torch.equal(received.view(torch.uint8), tensor.view(torch.uint8))


def test_a_cut_tensor_is_refused():
    field = encode_tensor(torch.ones(2, 3))
    for change in ({"shape": [2, 2]}, {"dtype": "torch.int64"}, {"data": ""}):
        with pytest.raises(TransferFailed, match="expected a tensor"):
            decode_tensor({**field, **change})


def test_pages_keep_their_types():
    pages = {StateType.SWA: [3, 1], StateType.C128_STATE: []}
    assert encode_pages(pages) == {"swa": [3, 1], "c128_state": []}
    assert decode_pages(encode_pages(pages)) == pages
    with pytest.raises(ComponentMismatch, match="expected types among swa"):
        decode_pages({"mamba": []})
    for ids in ("12", [1, "2"], [True], None):
        with pytest.raises(ComponentMismatch, match="component swa: expected a list of page ids"):
            decode_pages({"swa": ids})

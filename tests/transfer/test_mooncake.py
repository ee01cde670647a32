"""Mooncake behind the interface of a transfer engine: pages arrive where they should, and not after a close."""

from types import SimpleNamespace

import pytest
import torch

from dsv4_npu_ops.disagg import PageCopies, StateType, TransferFailed, page_copies, state_components

PAGE, SLOTS = 4, 28


def end(value: float):
    """Pools of one engine with one ratio-0 layer, its components and its engine."""
    from dsv4_npu_ops.disagg.mooncake import MooncakeEngine

    swa = torch.full((SLOTS, 8), value)
    layer = SimpleNamespace(ratio=0, swa=swa, compressor=None, indexer=None)
    components = state_components(SimpleNamespace(page_size_of=lambda pool: PAGE, layers=[layer], nextn=None))
    engine = MooncakeEngine()
    engine.register(components)
    return swa, components, engine


def test_pages_arrive_at_the_other_ends_numbers_and_nothing_else_changes():
    (source, ours, sender), (target, theirs, receiver) = end(1.0), end(0.0)
    source[4:8], source[8:12] = 2.0, 3.0
    copies = page_copies(ours, theirs, {StateType.SWA: [1, 2, 6]}, {StateType.SWA: [5, 3, 1]})
    sender.write(receiver.session, copies)
    expected = torch.zeros(SLOTS, 8)
    expected[20:24], expected[12:16], expected[4:8] = 2.0, 3.0, 1.0
    assert torch.equal(target, expected)
    sender.write(receiver.session, PageCopies([], [], []))
    sender.close()
    receiver.close()


def test_nothing_arrives_after_a_close():
    (_, ours, sender), (target, theirs, receiver) = end(1.0), end(0.0)
    session = receiver.session
    copies = page_copies(ours, theirs, {StateType.SWA: [1]}, {StateType.SWA: [2]})
    sender.write(session, copies)
    target.zero_()
    receiver.close()
    with pytest.raises(TransferFailed, match=r"writing 128 bytes in 1 copies to .* returned -1, expected 0"):
        sender.write(session, copies)
    assert torch.count_nonzero(target) == 0
    sender.close()


def test_memory_that_nobody_registered_is_not_written():
    (_, ours, sender), (_, _, receiver) = end(1.0), end(0.0)
    private = torch.zeros(SLOTS, 8)
    with pytest.raises(TransferFailed, match="returned -1"):
        sender.write(receiver.session, PageCopies([ours[0].data_ptrs[0]], [private.data_ptr()], [128]))
    assert torch.count_nonzero(private) == 0
    sender.close()
    receiver.close()

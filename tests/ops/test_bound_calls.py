"""Calls that hand over most of their arguments once."""

import copy
import gc
import pickle
import threading
import weakref
from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import dsv4_npu_ops as d
from dsv4_npu_ops.layout.buffers import GROUPS
from dsv4_npu_ops.layout.step import STEP_FIELDS
from dsv4_npu_ops.ops.bound_call import BoundCall
from dsv4_npu_ops.ops.step import bind_step, bits

pytestmark = pytest.mark.cpu_only

FIELDS = bits([STEP_FIELDS.index("out_swa_loc")])
NEW = torch.ops.dsv4_npu_ops.step.new


def served():
    layout = d.KVLayout(16, 32, 4, 512, dict.fromkeys(("full", "swa", "c4", "c128", "c4_state", "c128_state"), 60))
    tables = d.RequestTables(layout)
    alloc = d.KVAllocator(layout, tables)
    alloc.alloc_extend([0, 2], [0, 0], [130, 44])
    return alloc, tables


def slots(tables, rows, requests):
    return d.build_step(
        tables, rows, d.Step(out_swa_loc=torch.empty(8, dtype=torch.int32)), req_pool_indices=requests
    ).out_swa_loc


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops[func.name()] += 1
        return func(*args, **(kwargs or {}))


def test_the_rows_of_a_bound_step_change_from_call_to_call():
    _, tables = served()
    out = torch.empty(8, dtype=torch.int32)
    rows = d.StepRows.verify(torch.tensor([126, 40]), 4)
    call = bind_step(tables, rows, [out], FIELDS, torch.tensor([0, 2]), other_rows=True)
    for lengths, requests in (
        (torch.tensor([126, 40]), torch.tensor([0, 2])),
        (torch.tensor([40, 20], dtype=torch.int32), torch.tensor([2, 0], dtype=torch.int32)),
        (torch.tensor([0, 33]), None),
    ):
        assert call(lengths, requests) == []
        assert torch.equal(out, slots(tables, d.StepRows.verify(lengths, 4), requests))
    fixed = bind_step(tables, rows, [out], FIELDS, torch.tensor([0, 2]))
    fixed()
    assert torch.equal(out, slots(tables, rows, torch.tensor([0, 2])))


def test_a_refused_call_says_what_is_wrong_writes_nothing_and_the_next_one_works():
    _, tables = served()
    out = torch.full((8,), -7, dtype=torch.int32)
    call = bind_step(tables, d.StepRows.verify(torch.tensor([1, 1]), 4), [out], FIELDS, other_rows=True)
    with pytest.raises(ValueError, match=r"^step: seq_lens\[1\] is -1, expected at least 0"):
        call(torch.tensor([5, -1]), torch.tensor([0, 2]))
    with pytest.raises(ValueError, match=r"^step: req_pool_indices has shape \[1\], expected \[2\]"):
        call(torch.tensor([5, 6]), torch.tensor([0]))
    with pytest.raises(RuntimeError, match="Expected Tensor but got None"):
        call(None)
    with pytest.raises(RuntimeError, match="expected at most 12"):
        call(*[torch.tensor([5, 6])] * 12)
    assert (out == -7).all()
    call(torch.tensor([5, 6]), torch.tensor([0, 2]))
    assert (out > 0).all()


def test_what_a_call_holds_ends_with_it_and_its_number_is_not_used_again():
    _, tables = served()
    out = torch.empty(8, dtype=torch.int32)
    ended = weakref.ref(out.untyped_storage())
    first = out.data_ptr()
    call = bind_step(tables, d.StepRows.verify(torch.tensor([1, 1]), 4), [out], FIELDS, torch.tensor([0, 2]))
    number = call.args[0]
    del out
    call()
    assert first  # the buffer is the call's alone
    del call
    gc.collect()
    assert ended() is None
    with pytest.raises(ValueError, match=rf"^bound: call {number} is not bound"):
        torch.ops.dsv4_npu_calls.bound(number)
    torch.ops.dsv4_npu_calls.unbind(number)


def test_calls_are_not_copied_and_tables_that_have_some_are():
    _, tables = served()
    call = bind_step(tables, d.StepRows.final(torch.tensor([1])), [torch.empty(1, dtype=torch.int32)], FIELDS)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(call)
    lengths, requests = torch.tensor([126, 40]), torch.tensor([0, 2])
    want = d.flatten_verify_bundle(tables, requests, lengths, 4)
    assert tables.calls
    for other in (copy.deepcopy(tables), pickle.loads(pickle.dumps(tables))):
        assert not other.calls
        assert torch.equal(d.flatten_verify_bundle(other, requests, lengths, 4).out_c4_loc, want.out_c4_loc)


def test_of_a_call_modes_see_the_op():
    """As profilers, fake tensors and traces do: a bound call is the op with its arguments, and nothing else."""
    _, tables = served()
    lengths, requests = torch.tensor([126, 40]), torch.tensor([0, 2])
    d.flatten_verify_bundle(tables, requests, lengths, 4)
    with Seen() as seen:
        d.flatten_verify_bundle(tables, requests, lengths, 4)
    assert seen.ops == {"dsv4_npu_ops::step.new": 1}


def test_tables_that_begin_to_check_reservations_check_known_sizes_too():
    _, tables = served()
    lengths, requests = torch.tensor([126, 40]), torch.tensor([0, 2])
    d.flatten_verify_bundle(tables, requests, lengths + 300, 4)
    tables.check_reserved = True
    with pytest.raises(ValueError, match=r"^flatten_verify_bundle: req_pool_indices\[0\] is 0, which has no full slot"):
        d.flatten_verify_bundle(tables, requests, lengths + 300, 4)
    rows = d.StepRows.verify(lengths + 300, 4)
    out = torch.empty(8, dtype=torch.int32)
    for call, given in (
        (bind_step(tables, rows, [out], FIELDS, requests), ()),
        (bind_step(tables, rows, [out], FIELDS, requests, other_rows=True), (lengths + 300, requests)),
    ):
        with pytest.raises(ValueError, match="which has no full slot"):
            call(*given)


def test_threads_share_a_call():
    _, tables = served()
    rows = d.StepRows.verify(torch.tensor([1, 1]), 4)
    numbers = [2, 0, 8]
    call = bind_step(tables, rows, numbers, FIELDS, into_new=True, other_rows=True)
    faults = []

    def work(seed):
        draws = torch.Generator().manual_seed(seed)
        for _ in range(200):
            lengths = torch.randint(1, 40, (2,), generator=draws)
            if not torch.equal(call(lengths)[0], slots(tables, d.StepRows.verify(lengths, 4), None)):
                faults.append(lengths)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


@pytest.mark.parametrize(
    "changing, fault",
    [([99], "position 99 changes, expected one of 23"), ([-1], "position -1 changes"), ([0] * 12, "12 tensors change")],
)
def test_a_binding_that_cannot_be_is_refused(changing, fault):
    _, tables = served()
    arguments = *tables.op_pools, None, torch.tensor([1]), None, None, None, 1, 1, 32, 512, [2, 0, 1], FIELDS
    with pytest.raises(ValueError, match=f"^bind: {fault}"):
        BoundCall("step__new", arguments, changing)


@pytest.mark.parametrize("widths", [4, [4, 1, 0, 130]])
def test_new_slots_of_groups_are_as_many_as_groups_of_the_hosts_rows(widths):
    lengths = [126, 40, 7, 0]
    of_rows = [widths] * 4 if isinstance(widths, int) else widths
    groups = {
        ratio: sum((n + w) // ratio - n // ratio for n, w in zip(lengths, of_rows, strict=True) if n and w)
        for ratio in (4, 128)
    }
    _, tables = served()
    operand = None if isinstance(widths, int) else torch.tensor(widths)
    form, width = (4, widths) if isinstance(widths, int) else (5, 0)
    fields = bits([STEP_FIELDS.index(f"out_{pool}_loc") for pool in ("c4", "c128")])
    common = *tables.op_pools, None, torch.tensor(lengths), operand, None, None, form, width, 32, 512
    made = NEW(
        *common,
        [2, 1, GROUPS["c4"], 2, 0, GROUPS["c128"]],
        fields,
        host_seq_lens=torch.tensor(lengths),
        host_operand=operand,
    )
    assert [tensor.shape[0] for tensor in made] == [groups[4], groups[128]]
    assert [tensor.dtype for tensor in made] == [torch.int64, torch.int32]


def test_groups_are_counted_on_the_host_alone():
    _, tables = served()
    lengths = torch.tensor([126, 40])
    common = *tables.op_pools, None, lengths, None, None, None, 4, 4, 32, 512, [2, 0, GROUPS["c4"]]
    fields = bits([STEP_FIELDS.index("out_c4_loc")])
    with pytest.raises(ValueError, match=r"^step: host_seq_lens is None, expected the lengths on the host"):
        NEW(*common, fields)
    with pytest.raises(ValueError, match=r"is on meta, expected a host tensor \(cpu\)"):
        NEW(*common, fields, host_seq_lens=lengths.to("meta"))
    with pytest.raises(ValueError, match=r"^step: seq_lens\[0\] is -1, expected at least 0"):
        NEW(*common, fields, host_seq_lens=torch.tensor([-1, 40]))

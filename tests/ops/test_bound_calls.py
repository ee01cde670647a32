"""Calls that hand over most of their arguments once."""

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import dsv4_npu_ops as d
from dsv4_npu_ops.graph import BucketShape, VerifyBucket
from dsv4_npu_ops.layout.buffers import GROUPS
from dsv4_npu_ops.layout.step import STEP_FIELDS
from dsv4_npu_ops.ops.bound_call import BoundCall
from dsv4_npu_ops.ops.step import NewStep, bind_step, bits

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
    call = bind_step(tables, rows, [out], FIELDS, torch.tensor([0, 2]))
    for lengths, requests in (
        (torch.tensor([126, 40]), torch.tensor([0, 2])),
        (torch.tensor([40, 20], dtype=torch.int32), torch.tensor([2, 0], dtype=torch.int32)),
        (torch.tensor([0, 33]), None),
    ):
        call(lengths, requests)
        assert torch.equal(out, slots(tables, d.StepRows.verify(lengths, 4), requests))


def test_a_refused_call_says_what_is_wrong_writes_nothing_and_the_next_one_works():
    _, tables = served()
    out = torch.full((8,), -7, dtype=torch.int32)
    call = bind_step(tables, d.StepRows.verify(torch.tensor([1, 1]), 4), [out], FIELDS)
    with pytest.raises(ValueError, match=r"^step: seq_lens\[1\] is -1, expected at least 0"):
        call(torch.tensor([5, -1]), torch.tensor([0, 2]))
    with pytest.raises(ValueError, match=r"^step: req_pool_indices has shape \[1\], expected \[2\]"):
        call(torch.tensor([5, 6]), torch.tensor([0]))
    with pytest.raises(RuntimeError, match="Expected Tensor but got None"):
        call(None)
    assert (out == -7).all()
    call(torch.tensor([5, 6]), torch.tensor([0, 2]))
    assert (out > 0).all()


def test_what_a_call_holds_ends_with_it_and_its_number_is_not_used_again():
    _, tables = served()
    out = torch.empty(8, dtype=torch.int32)
    ended = weakref.ref(out.untyped_storage())
    arguments = *tables.op_pools, None, torch.tensor([1, 1]), None, None, None, 4, 4, 32, 512, [out], FIELDS
    call = BoundCall("step", arguments)
    number = call.run.args[0]
    call.run()
    assert (out[:4] > 0).all()
    del out, arguments
    gc.collect()
    assert ended() is not None  # the buffer is the call's alone
    call.run()
    del call
    gc.collect()
    assert ended() is None
    with pytest.raises(ValueError, match=rf"^bound: call {number} is not bound"):
        torch.ops.dsv4_npu_calls.bound(number)
    torch.ops.dsv4_npu_calls.unbind(number)


def test_calls_are_not_copied_and_tables_that_have_some_are():
    _, tables = served()
    buffers = [torch.empty(1, dtype=torch.int32)]
    call = BoundCall(
        "step", (*tables.op_pools, None, torch.tensor([1]), None, None, None, 1, 1, 32, 512, buffers, FIELDS)
    )
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(call)
    lengths, requests = torch.tensor([126, 40]), torch.tensor([0, 2])
    for _ in range(3):
        want = d.flatten_verify_bundle(tables, requests, lengths, 4)
    assert tables.calls
    for other in (copy.deepcopy(tables), pickle.loads(pickle.dumps(tables))):
        assert not other.calls
        assert torch.equal(d.flatten_verify_bundle(other, requests, lengths, 4).out_c4_loc, want.out_c4_loc)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_of_a_call_modes_see_the_op(mode):
    """As fake tensors and tracers do: a bound call is the op with its arguments, and nothing else."""
    _, tables = served()
    lengths, requests = torch.tensor([126, 40]), torch.tensor([0, 2])
    bucket = VerifyBucket(tables, BucketShape(2, 4), torch.ones(512, 4), torch.ones(512, 4))
    with mode():
        for _ in range(4):
            with Seen() as seen:
                d.flatten_verify_bundle(tables, requests, lengths, 4)
                bucket.refresh()
            assert seen.ops == {"dsv4_npu_ops::step.new": 1, "dsv4_npu_ops::step": 1}


def test_tables_that_begin_to_check_reservations_check_known_sizes_too():
    _, tables = served()
    lengths, requests = torch.tensor([426, 340]), torch.tensor([0, 2])
    bucket = VerifyBucket(tables, BucketShape(2, 4), torch.ones(512, 4), torch.ones(512, 4))
    bucket.fill([0, 2], [426, 340])
    rows, out = d.StepRows.verify(lengths, 4), torch.empty(8, dtype=torch.int32)
    call = bind_step(tables, rows, [out], FIELDS, requests)
    for _ in range(3):
        d.flatten_verify_bundle(tables, requests, lengths, 4)
        bucket.refresh()
        call(lengths, requests)
    tables.check_reserved = True
    for name, again in (
        ("flatten_verify_bundle", lambda: d.flatten_verify_bundle(tables, requests, lengths, 4)),
        ("build_verify_step", bucket.refresh),
        ("step", lambda: call(lengths, requests)),
    ):
        with pytest.raises(ValueError, match=rf"^{name}: req_pool_indices\[0\] is 0, which has no full slot"):
            again()


def test_threads_share_a_call():
    _, tables = served()
    step = NewStep(tables, [2, 0, 8], FIELDS)
    faults = []

    def work(seed):
        draws = torch.Generator().manual_seed(seed)
        for _ in range(200):
            lengths = torch.randint(1, 40, (2,), generator=draws)
            rows = d.StepRows.verify(lengths, 4)
            if not torch.equal(step.run(rows, None)[0], slots(tables, rows, None)):
                faults.append(lengths)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_refresh_fills_the_bucket_it_was_compiled_with(backend):
    _, tables = served()
    cos = torch.arange(512.0)[:, None].expand(512, 4).contiguous()
    bucket = VerifyBucket(tables, BucketShape(2, 4), cos, cos)
    compiled = torch.compile(lambda factor: bucket.refresh().out_cache_loc.out_full_loc * factor, backend=backend)
    for lengths in ([126, 40], [33, 7]):
        bucket.fill([0, 2], lengths)
        want = d.flatten_verify_bundle(tables, torch.tensor([0, 2]), torch.tensor(lengths), 4).out_full_loc
        assert torch.equal(compiled(3), want * 3)


AT_EXIT = """
import atexit
atexit.register(lambda: print(call_again()))
import torch, dsv4_npu_ops as d
pools = dict.fromkeys(("full", "swa", "c4", "c128", "c4_state", "c128_state"), 60)
tables = d.RequestTables(d.KVLayout(16, 32, 4, 512, pools))
def call_again():
    return d.flatten_verify_bundle(tables, torch.tensor([0]), torch.tensor([8]), 2).out_full_loc.tolist()
for _ in range(3):
    call_again()
"""


def test_a_call_works_until_the_process_ends():
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 0]\n", "")


def test_a_fork_while_others_bind_leaves_a_child_that_can():
    _, tables = served()
    ends = threading.Event()
    unbind = torch.ops.dsv4_npu_calls.unbind.default

    def bind():
        width = 0
        while not ends.is_set():
            width = width % 200 + 1
            step = NewStep(tables, [2, 0, width], FIELDS)
            for _ in range(2):
                step.run(d.StepRows.verify(torch.tensor([1]), width), None)

    threads = [threading.Thread(target=bind) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(60):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a process of several threads forks
                child = os.fork()
            if child == 0:
                unbind(-1)
                os._exit(7)
            deadline = time.monotonic() + 30
            while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
                if time.monotonic() > deadline:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    pytest.fail("a child waits for a lock that nobody holds")
                time.sleep(0.001)
            assert os.waitstatus_to_exitcode(ended[1]) == 7
    finally:
        ends.set()
        for thread in threads:
            thread.join()


def test_a_bucket_whose_rope_tables_are_none_is_refused():
    _, tables = served()
    with pytest.raises(ValueError, match=r"^build_verify_step: RoPE rows are asked for, expected rope_cos"):
        VerifyBucket(tables, BucketShape(2, 4), torch.ones(512, 4), None).refresh()


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
    with pytest.raises(ValueError, match=r"^step: host_seq_lens has shape \[1\], expected \[2\]"):
        NEW(*common, fields, host_seq_lens=torch.tensor([40]))
    for host in (None, lengths):  # what are no sizes are no groups
        with pytest.raises(ValueError, match=r"^(empty_tensors: numbers are|step: host_seq_lens is None)"):
            NEW(*common[:-1], [2, -4, 4], fields, host_seq_lens=host)


@pytest.mark.parametrize("num_tokens", [np.int64(8), np.int32(8), True + 7])
def test_other_integers_say_how_many_tokens_there_are(num_tokens):
    _, tables = served()
    lengths, requests = torch.tensor([126, 40]), torch.tensor([0, 2])
    want = d.flatten_verify_bundle(tables, requests, lengths, 4, seq_lens_cpu=lengths)
    got = d.flatten_verify_bundle(tables, requests, lengths, 4, seq_lens_cpu=lengths, num_tokens=num_tokens)
    assert all(torch.equal(getattr(got, name), getattr(want, name)) for name in vars(want))


def test_sizes_of_groups_are_symbols_of_a_trace():
    _, tables = served()
    lengths = torch.tensor([126, 40])
    common = *tables.op_pools, None, lengths, None, None, None, 4, 4, 32, 512
    fields = bits([STEP_FIELDS.index(f"out_{pool}_loc") for pool in ("c4", "c128")])
    for numbers, wanted in (
        ([2, 0, -4, 2, 0, -128], fields),
        ([2, 0, -4], fields & -fields),
        ([2, 0, 2], fields & -fields),
    ):
        torch.library.opcheck(NEW, (*common, numbers, wanted), {"host_seq_lens": lengths})

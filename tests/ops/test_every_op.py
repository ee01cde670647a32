"""What every op does alike, found by its schema: devices, gradients, fake tensors."""

import pytest
import torch
from backends import BACKEND
from ops.op_calls import op_names, recorded_calls, schema
from torch._subclasses.fake_tensor import FakeTensorMode

import dsv4_npu_ops as d

if BACKEND != "cpu":
    pytest.skip("what every backend's ops do before a kernel is chosen", allow_module_level=True)


def copies(arguments):
    return {n: value.clone() for n, value in arguments.items() if isinstance(value, torch.Tensor)}


CALLS = recorded_calls()
TENSORS = [(name, a.name) for name in op_names() for a in schema(name).arguments if "Tensor" in str(a.type)]
GIVEN = [(name, argument) for name, argument in TENSORS if CALLS[name][1].get(argument) is not None]
# Of a single tensor there are no others, and sizes on the host want it there.
BESIDE_OTHERS = [(name, a) for name, a in GIVEN if len(copies(CALLS[name][1])) > 1 or "step_sizes" in name]
FLOATING = [(name, a) for name, a in GIVEN if CALLS[name][1][a].is_floating_point() or CALLS[name][1][a].is_complex()]


def bare(name):
    return name.removeprefix("dsv4_npu_ops::").partition(".")[0]


def test_there_is_a_call_of_every_op_with_every_tensor():
    assert set(CALLS) >= set(op_names())
    # Of two sources of a draft's slots, a call has one; prefixes belong to prefills.
    assert {argument for _, argument in set(TENSORS) - set(GIVEN)} == {"reservation", "prefix_lens"}


@pytest.mark.parametrize("name, argument", BESIDE_OTHERS, ids=map(" ".join, BESIDE_OTHERS))
def test_one_meta_tensor_among_others_is_named(name, argument):
    """As when a model is built on the meta device and one of its buffers is never materialised."""
    op, arguments = CALLS[name]
    tensors = copies(arguments)
    with pytest.raises(ValueError, match=rf"^{bare(name)}: {argument} is on meta, expected .*cpu"):
        op(**arguments | tensors | {argument: arguments[argument].to("meta")})
    del tensors[argument]
    assert all(torch.equal(tensor.nan_to_num(), arguments[n].nan_to_num()) for n, tensor in tensors.items())


@pytest.mark.parametrize("name", op_names())
def test_all_meta_and_all_fake_tensors_give_shapes(name):
    op, arguments = CALLS[name]
    if name == "dsv4_npu_ops::step_sizes":
        pytest.skip("sizes come from values")

    def shapes(results):
        results = [results] if isinstance(results, torch.Tensor) else results or []
        return [(tuple(tensor.shape), tensor.dtype) for tensor in results]

    tensors = copies(arguments)
    meta = {n: value.to("meta") for n, value in tensors.items()}
    with FakeTensorMode() as mode:
        fake = {n: mode.from_tensor(value) for n, value in tensors.items()}
        of_fake = op(**arguments | fake)
    want = shapes(op(**arguments | tensors))
    assert shapes(of_fake) == shapes(op(**arguments | meta)) == want


@pytest.mark.parametrize("name, argument", FLOATING, ids=map(" ".join, FLOATING))
def test_a_tensor_that_requires_grad_is_refused_unless_nobody_records(name, argument):
    op, arguments = CALLS[name]
    tensors = copies(arguments)
    tensors[argument].requires_grad_()
    with pytest.raises(RuntimeError, match=rf"^{bare(name)}: {argument} requires grad, expected inference"):
        op(**arguments | tensors)
    with torch.no_grad():
        op(**arguments | tensors)
    with torch.inference_mode():
        op(**arguments | tensors)


@pytest.mark.parametrize("name", op_names())
def test_autograd_learns_what_is_overwritten(name):
    op, arguments = CALLS[name]
    tensors = copies(arguments)
    op(**arguments | tensors)
    written = {a.name for a in schema(name).arguments if a.alias_info is not None and a.alias_info.is_write}
    assert {n for n, tensor in tensors.items() if tensor._version} == written


def test_a_backward_notices_a_rotation_of_what_it_saved():
    q, rows = torch.ones(3, 6), torch.full((3, 4), 0.5)
    loss = (q * torch.ones(6, requires_grad=True)).sum()
    d.apply_rotary(q, None, rows, rows)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()

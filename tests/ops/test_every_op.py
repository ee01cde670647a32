"""What every op does alike, found by its schema: devices, gradients, fake tensors."""

import re

import pytest
import torch
from backends import BACKEND
from ops.op_calls import op_names, recorded_calls, schema, spoken_name, tensors_in, with_tensors
from torch._subclasses.fake_tensor import FakeTensorMode

import dsv4_npu_ops as d

if BACKEND != "cpu":
    pytest.skip("what every backend's ops do before a kernel is chosen", allow_module_level=True)


def copies(arguments):
    return with_tensors(arguments, lambda place, tensor: tensor.clone())


CALLS = recorded_calls()
TENSORS = {(name, a.name) for name in op_names() for a in schema(name).arguments if "Tensor" in str(a.type)}
GIVEN = [(name, place) for name in op_names() for place in tensors_in(CALLS[name][1])]
# On the host: sizes from values.
SIZES = ("dsv4_npu_ops::extend_from_lists.needs", "dsv4_npu_ops::step_sizes")
# Of a single tensor there are no others, and sizes want it on the host.
BESIDE_OTHERS = [(n, place) for n, place in GIVEN if len(tensors_in(CALLS[n][1])) > 1 or n in SIZES]
FLOATING = [
    (n, place) for n, place in GIVEN if (t := tensors_in(CALLS[n][1])[place]).is_floating_point() or t.is_complex()
]


def bare(name):
    return name.removeprefix("dsv4_npu_ops::").partition(".")[0]


def spoken(name, place):
    return re.escape(spoken_name(bare(name), CALLS[name][1], place))


def test_there_is_a_call_of_every_op_with_every_tensor():
    assert set(CALLS) >= set(op_names())
    # A call has one of two sources of a draft's slots, and of what was accepted; and sizes of its own for groups.
    assert {argument for _, argument in TENSORS - {(name, place[0]) for name, place in GIVEN}} == {
        "reservation",
        "accepted_lens",
        "host_seq_lens",
        "host_operand",
    }
    assert CALLS["dsv4_npu_ops::step"][1]["fields"] == 2**31 - 1


@pytest.mark.parametrize("name, place", BESIDE_OTHERS, ids=str)
def test_one_meta_tensor_among_others_is_named(name, place):
    """As when a model is built on the meta device and one of its buffers is never materialised."""
    op, arguments = CALLS[name]
    changed = with_tensors(copies(arguments), lambda at, tensor: tensor.to("meta") if at == place else tensor)
    with pytest.raises(ValueError, match=rf"^{bare(name)}: {spoken(name, place)} is on meta, expected .*cpu"):
        op(**changed)
    before = tensors_in(arguments)
    del before[place]
    after = tensors_in(changed)
    assert all(torch.equal(after[at].nan_to_num(), tensor.nan_to_num()) for at, tensor in before.items())


@pytest.mark.parametrize("name", op_names())
def test_all_meta_and_all_fake_tensors_give_shapes(name):
    op, arguments = CALLS[name]
    if name in SIZES:
        pytest.skip("sizes come from values")

    def shapes(results):
        results = [results] if isinstance(results, torch.Tensor) else results or []
        return [(tuple(tensor.shape), tensor.dtype) for tensor in results]

    meta = with_tensors(arguments, lambda place, tensor: tensor.to("meta"))
    with FakeTensorMode() as mode:
        of_fake = op(**with_tensors(arguments, lambda place, tensor: mode.from_tensor(tensor)))
    want = shapes(op(**copies(arguments)))
    assert shapes(of_fake) == shapes(op(**meta)) == want


@pytest.mark.parametrize("name, place", FLOATING, ids=str)
def test_a_tensor_that_requires_grad_is_refused_unless_nobody_records(name, place):
    op, arguments = CALLS[name]
    changed = with_tensors(copies(arguments), lambda at, t: t.requires_grad_() if at == place else t)
    with pytest.raises(RuntimeError, match=rf"^{bare(name)}: {place[0]} requires grad, expected inference"):
        op(**changed)
    with torch.no_grad():
        op(**changed)
    with torch.inference_mode():
        op(**changed)


@pytest.mark.parametrize("name", op_names())
def test_autograd_learns_what_is_overwritten(name):
    op, arguments = CALLS[name]
    changed = copies(arguments)
    op(**changed)
    written = {a.name for a in schema(name).arguments if a.alias_info is not None and a.alias_info.is_write}
    tensors = tensors_in(changed)
    assert {place for place, tensor in tensors.items() if tensor._version} == {p for p in tensors if p[0] in written}
    assert written or schema(name).returns


def test_a_backward_notices_a_rotation_of_what_it_saved():
    q, rows = torch.ones(3, 6), torch.full((3, 4), 0.5)
    loss = (q * torch.ones(6, requires_grad=True)).sum()
    d.apply_rotary(q, None, rows, rows)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()

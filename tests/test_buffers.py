"""Buffers of results: what they are, and what is refused."""

import pytest
import torch

import dsv4_npu_ops as d
from dsv4_npu_ops.layout.buffers import DTYPES, empty_tensors, number_of


def test_dtypes_shapes_and_devices():
    for device in ("cpu", "meta"):
        shapes = [(), (0,), (3,), (2, 0, 4), (1, 2, 3)]
        buffers = [(dtype, shape) for dtype in DTYPES for shape in shapes]
        made = empty_tensors([(number_of(dtype), *shape) for dtype, shape in buffers], device)
        assert [(tensor.dtype, tuple(tensor.shape)) for tensor in made] == buffers
        assert all(tensor.is_contiguous() and tensor.device.type == device for tensor in made)
        assert len({tensor.untyped_storage()._cdata for tensor in made}) == len(made)
    assert empty_tensors([], "cpu") == []


def test_a_dtype_that_no_op_takes():
    with pytest.raises(ValueError, match=r"empty: dtype is torch\.complex64, expected one of torch\.int32, "):
        d.AdvancedStep.empty(d.RequestTables.of({}, max_context_len=4), 1, token_dtype=torch.complex64)


@pytest.mark.parametrize("numbers", [[1, 8], [1, -1], [0], [1], [-1, 0], [3, 0, 3]])
def test_numbers_that_describe_nothing(numbers):
    with pytest.raises(ValueError, match=r"empty_tensors: numbers are .*, expected of each tensor how many follow"):
        torch.ops.dsv4_npu_ops.empty_tensors(numbers, torch.device("cpu"))

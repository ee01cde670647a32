"""What torch.func does with the ops is right or refused. That they have no gradients is tests/ops/test_every_op.py."""

import warnings

import pytest
import torch

import dsv4_npu_ops as d
from modes.serving_round import ROPE_DIM, frequencies, host, make

COS, SIN = d.build_rope_tables(frequencies(), torch.float32)


def test_vmap_over_positions_is_a_gather_of_all():
    batched = torch.tensor([[0, 3, 7], [511, 0, 1]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a loop is slow
        rows = torch.func.vmap(lambda positions: d.rope_gather(COS, SIN, positions))(batched)
    assert torch.equal(rows[0], COS[batched])
    assert torch.equal(rows[1], SIN[batched])


def test_vmap_over_what_the_host_must_read_is_refused():
    """The number of tokens decides sizes, and one size cannot hold for all of a batch of batches."""
    tables, allocator = make()
    allocator.alloc_extend([0], [0], [130])
    lengths = torch.tensor([[126], [5]])
    with pytest.raises(RuntimeError, match="Batching rule not implemented for dsv4_npu_ops::step_sizes"):
        torch.func.vmap(lambda length: d.flatten_verify_bundle(tables, host([0]), length, 4, seq_lens_cpu=length))(
            lengths
        )


def test_functionalized_writes_are_the_writes():
    def rotate(features):
        d.apply_rotary(features, None, COS[:2], SIN[:2])
        return features * 2

    features = torch.arange(2.0 * ROPE_DIM).view(2, 1, ROPE_DIM)
    functional = torch.func.functionalize(rotate)(features.clone())
    assert torch.equal(functional, rotate(features.clone()))
    assert not torch.equal(functional, features * 2)

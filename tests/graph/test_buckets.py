"""Static buckets of verify and decode steps: replays in any order against fresh eager results."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dsv4_npu_ops import CompressMetadata, build_compress_metadata_decode, graph_capture
from dsv4_npu_ops.graph import BucketShape, GraphBuckets, VerifyBucket
from graph.serving import CONTEXT, REQUESTS, assert_like_eager, batches, filled_tables, rope_tables, tensors_of

SHAPES = [
    BucketShape(1, 4),
    BucketShape(4, 4),
    BucketShape(7, 4),
    BucketShape(4, 1),
    BucketShape(2, 6, ragged=True),
    BucketShape(7, 5, ragged=True),
]
TOKEN_ROPE = {"main": rope_tables(1, dtype=torch.bfloat16), "compress": rope_tables(0, dim=6)}


def make_buckets(tables, **options):
    return GraphBuckets(tables, SHAPES, *rope_tables(0), token_rope=TOKEN_ROPE, **options)


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


@given(data=st.data())
def test_replays_in_any_order_equal_eager_steps(data):
    tables = filled_tables()
    max_seq_len = data.draw(st.sampled_from([None, CONTEXT, CONTEXT + 100]))
    buckets = list(make_buckets(tables, max_seq_len=max_seq_len))
    addresses = [[t.data_ptr() for t in tensors_of(bucket.step).values()] for bucket in buckets]
    for bucket in buckets:
        for tensor in tensors_of(bucket.step).values():
            tensor.fill_(-77)
    for _ in range(data.draw(st.integers(1, 6))):
        bucket = data.draw(st.sampled_from(buckets))
        shape = bucket.shape
        batch = data.draw(batches(shape.num_rows, shape.width, shape.ragged))
        bucket.fill(batch[0], batch[1], batch[2] if shape.ragged else None)
        assert bucket.refresh() is bucket.step
        assert_like_eager(bucket, tables, batch, rope_tables(0), TOKEN_ROPE, max_seq_len)
    assert addresses == [[t.data_ptr() for t in tensors_of(bucket.step).values()] for bucket in buckets]


@given(data=st.data())
def test_width_one_is_a_decode_step(data):
    tables = filled_tables()
    bucket = VerifyBucket(tables, BucketShape(5, 1), *rope_tables(0))
    requests, lengths, _ = data.draw(batches(5, 1, False))
    bucket.fill(requests, lengths)
    bucket.refresh()
    requests, lengths = (values + [0] * (5 - len(values)) for values in (requests, lengths))
    want = build_compress_metadata_decode(
        tables,
        int32(*requests),
        int32(*(length + 1 if length else 0 for length in lengths)),
        out=CompressMetadata.empty(tables.layout, 5, 5),
    )
    for name, tensor in tensors_of(want).items():
        assert torch.equal(getattr(bucket.step.metadata, name), tensor), name


def test_buckets_share_page_tables_and_nothing_else():
    largest_rows, *others = sorted(make_buckets(filled_tables()), key=lambda bucket: -bucket.shape.num_rows)
    owned = {tensor.data_ptr() for tensor in tensors_of(largest_rows.step).values()}
    for bucket in others:
        for name, tensor in tensors_of(bucket.step).items():
            assert (tensor.data_ptr() in owned) == name.endswith("page_table"), name
            if name.endswith("page_table"):
                assert tensor.is_contiguous()
                assert tensor.stride() == getattr(largest_rows.step.metadata, name).stride()


def test_the_smallest_fitting_bucket():
    buckets = make_buckets(filled_tables())
    assert [bucket.shape.num_tokens for bucket in buckets] == [35, 28, 16, 12, 4, 4]

    def found(*batch, ragged=False):
        return buckets.find(*batch, ragged=ragged).shape

    assert found(1, 4) == BucketShape(1, 4)
    assert found(2, 4) == BucketShape(2, 6, ragged=True)  # 12 tokens, where the uniform one has 16
    assert found(3, 4) == BucketShape(4, 4)
    assert found(5, 4) == BucketShape(7, 4)
    assert found(3, 1) == BucketShape(4, 1)
    assert found(5, 1) == found(3, 5) == BucketShape(7, 5, ragged=True)
    assert found(1, 4, ragged=True) == found(2, 6) == BucketShape(2, 6, ragged=True)
    assert found(0, 4) == BucketShape(1, 4)
    message = r"the batch is 8 x up to 2 \(rows x width\), expected to fit 1 x 4, 4 x 1, 2 x up to 6, 4 x 4, 7 x 4, 7 x"
    with pytest.raises(ValueError, match=message):
        buckets.find(8, 2, ragged=True)
    with pytest.raises(ValueError, match=r"the batch is 3 x 6 \(rows x width\)"):
        buckets.find(3, 6)


def test_fill_finds_the_bucket_of_a_batch():
    tables = filled_tables()
    buckets = make_buckets(tables)
    for width, batch in ((4, ([3, 1, 8], [10, 0, 126], [4] * 3)), ([0, 3, 5], ([3, 1, 8], [10, 7, 126], [0, 3, 5]))):
        bucket = buckets.fill(*batch[:2], width)
        bucket.refresh()
        assert_like_eager(bucket, tables, batch, rope_tables(0), TOKEN_ROPE)
    # A uniform batch in a ragged bucket.
    bucket = buckets.fill([2, 5], [9, 300], 6)
    bucket.refresh()
    assert bucket.shape.ragged
    assert_like_eager(bucket, tables, ([2, 5], [9, 300], [6, 6]), rope_tables(0), TOKEN_ROPE)


BAD_FILLS = [
    (dict(seq_lens=[1, 2, 3], requests=[0, 1, 2]), "seq_lens has 3 entries, expected at most 2"),
    (dict(requests=[0]), "req_pool_indices has 1 entries, expected 2 like seq_lens"),
    (dict(widths=None), "widths is None, expected one a row"),
    (dict(widths=[1]), "widths has 1 entries, expected 2 like seq_lens"),
    (dict(widths=[1, 7]), "widths[1] is 7, expected 0 to 6"),
    (dict(widths=[-1, 2]), "widths[0] is -1, expected 0 to 6"),
    (dict(seq_lens=[5, -1]), "seq_lens[1] is -1, expected at least 0"),
    (dict(seq_lens=[5, 399]), "seq_lens[1] is 399 before 2 new tokens, expected at most 400 with them"),
    (dict(requests=[0, REQUESTS]), "req_pool_indices[1] is 9, expected 0 <= index < 9"),
    (dict(seq_lens=[0.5, 2]), "seq_lens is [0.5, 2], expected a list or a 1-D tensor of integers"),
]


@pytest.mark.parametrize("bad, message", BAD_FILLS, ids=[message for _, message in BAD_FILLS])
def test_a_bad_fill_raises_and_changes_nothing(bad, message):
    bucket = VerifyBucket(filled_tables(), BucketShape(2, 6, ragged=True), *rope_tables(0))
    bucket.fill([3, 4], [7, 8], [1, 2])
    with pytest.raises(ValueError) as error:
        bucket.fill(bad.get("requests", [0, 1]), bad.get("seq_lens", [5, 6]), bad.get("widths", [1, 2]))
    assert f"fill: {message}" in str(error.value)
    inputs = bucket.inputs
    assert [t.tolist() for t in (inputs.req_pool_indices, inputs.seq_lens, inputs.widths)] == [[3, 4], [7, 8], [1, 2]]


def test_padding_may_hold_anything():
    tables = filled_tables()
    bucket = VerifyBucket(tables, BucketShape(4, 6, ragged=True), *rope_tables(0))
    bucket.fill([-1, 3, 2**40], [0, 7, 2**40], [6, 2, 0])
    bucket.refresh()
    assert_like_eager(bucket, tables, ([0, 3], [0, 7], [6, 2]), rope_tables(0), {})


def test_a_captured_step_refreshes_but_does_not_fill():
    tables = filled_tables()
    bucket = VerifyBucket(tables, BucketShape(2, 4), *rope_tables(0))
    bucket.fill([3], [7])
    with graph_capture():
        bucket.refresh()
        with pytest.raises(RuntimeError, match="fill: a graph is being captured"):
            bucket.fill([4], [8])
    assert_like_eager(bucket, tables, ([3], [7], [4]), rope_tables(0), {})


def test_bad_shapes():
    tables, rope = filled_tables(), rope_tables(0)
    with pytest.raises(ValueError, match="BucketShape: num_rows and width are 0 and 4, expected at least 1"):
        BucketShape(0, 4)
    with pytest.raises(ValueError, match=r"GraphBuckets: shapes is \[\], expected at least one"):
        GraphBuckets(tables, [], *rope)
    with pytest.raises(ValueError, match="expected at least one, and each once"):
        GraphBuckets(tables, [BucketShape(1, 1), BucketShape(1, 1)], *rope)
    small = VerifyBucket(tables, BucketShape(1, 1), *rope)
    with pytest.raises(ValueError, match=r"page_tables has swa pages \[1, 25\], expected at least 2 rows of 25"):
        VerifyBucket(tables, BucketShape(2, 1), *rope, page_tables=small.step.metadata)
    uniform = VerifyBucket(tables, BucketShape(2, 1), *rope)
    with pytest.raises(ValueError, match=r"widths is \[1, 1\], expected None, since every row has the same width"):
        uniform.fill([0, 1], [5, 6], [1, 1])


def test_a_layout_without_some_pools():
    tables = filled_tables(pools=("full", "swa", "c4"))
    bucket = VerifyBucket(tables, BucketShape(3, 4), *rope_tables(0))
    bucket.fill([1], [126])
    bucket.refresh()
    assert bucket.step.metadata.c128_page_table.shape == (3, 0)
    assert_like_eager(bucket, tables, ([1], [126], [4]), rope_tables(0), {})

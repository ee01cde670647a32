"""Bad calls of the wrappers around a step: what is wrong is named as the caller wrote it, where it lies in a result."""

import pytest
import torch
from ops.step_inputs import filled_tables
from reference.step import POOLS

from dsv4_npu_ops import (
    CompressMetadata,
    KVLayout,
    OutCacheLoc,
    VerifyStep,
    build_compress_metadata_verify,
    build_verify_step,
    flatten_verify_bundle,
)

pytestmark = pytest.mark.cpu_only


def make_layout():
    return KVLayout(16, 20, 4, 300, dict.fromkeys(POOLS, 8))


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def test_bad_host_numbers():
    layout = make_layout()
    tables, requests, two = filled_tables(layout, 0, "cpu"), int32(0, 1), int32(5, 6)
    cases = [
        (dict(num_tokens=7), r"^flatten_verify_bundle: num_tokens is 7 .*, but row 1 ends at token 4 \+ 4"),
        (dict(num_tokens=-1), r"^flatten_verify_bundle: num_rows and num_tokens are 2 and -1, expected at least 0"),
        (dict(seq_lens_cpu=int32(0, 0)), "^flatten_verify_bundle: out_c4_loc has 0 entries, expected at least 2"),
        (dict(seq_lens_cpu=int32(5, -6)), r"^flatten_verify_bundle: seq_lens\[1\] is -6, expected at least 0"),
        (
            dict(seq_lens_cpu=int32(5)),
            r"^flatten_verify_bundle: seq_lens_cpu has shape \[1\], expected \[2\] like seq_lens",
        ),
        (dict(seq_lens_cpu=two.to("meta")), "^flatten_verify_bundle: seq_lens_cpu is on meta, expected a host copy"),
    ]
    for keywords, message in cases:
        with pytest.raises(ValueError, match=message):
            flatten_verify_bundle(tables, requests, two, 4, **keywords)
    with pytest.raises(ValueError, match="num_draft_tokens is on meta, expected a host copy"):
        flatten_verify_bundle(tables, requests, two, two.to("meta"), seq_lens_cpu=two)
    with pytest.raises(ValueError, match="num_tokens is None, expected a number: lengths on meta are not read"):
        flatten_verify_bundle(tables, requests, two.to("meta"), two.to("meta"))
    with pytest.raises(ValueError, match=r"^build_verify_step: rope_cos has shape \[8\], expected 2 dimensions"):
        build_verify_step(tables, requests, two, 4, torch.ones(8), torch.ones(8))
    with pytest.raises(ValueError, match=r"VerifyStep\.empty: rope_dim is -1, expected at least 0"):
        VerifyStep.empty(layout, 2, 8, -1)
    with pytest.raises(ValueError, match="num_rows, num_tokens and max_seq_len are 2, -1 and None, expected at least"):
        CompressMetadata.empty(layout, 2, -1)


def replaced(out, **tensors):
    """The same buffers, but for those named, wherever they lie in the result."""
    for name, tensor in tensors.items():
        owner = next(part for part in (out, *parts_of(out)) if hasattr(part, name))
        setattr(owner, name, tensor)
    return out


def parts_of(out):
    return [getattr(out, name) for name in ("out_cache_loc", "metadata") if hasattr(out, name)]


def into(wrapper, out, lengths=(5, 6), widths=4, rope=300):
    """A wrapper's call of two rows with 40 tokens in `out`."""
    layout = make_layout()
    arguments = (filled_tables(layout, 0, "cpu"), int32(0, 1), int32(*lengths), widths)
    if wrapper is build_verify_step:
        arguments = (*arguments, torch.zeros(rope, 4), torch.zeros(rope, 4))
    return wrapper(*arguments, out=out(layout))


def verify_step(**tensors):
    return lambda layout: replaced(VerifyStep.empty(layout, 2, 40, 4), **tensors)


def bundle(**tensors):
    return lambda layout: replaced(OutCacheLoc.empty(layout, 2, 40), **tensors)


def metadata(**tensors):
    return lambda layout: replaced(CompressMetadata.empty(layout, 2, 40), **tensors)


BUFFERS = [
    (build_verify_step, verify_step(c4_sin=torch.zeros(12, 4).half()), "out.c4_sin has dtype Half, expected Float"),
    (build_verify_step, verify_step(c128_cos=torch.zeros(3, 4)), "out.c128_cos has shape [3, 4], expected [2, 4]"),
    (
        build_verify_step,
        verify_step(out_swa_loc=int32(0)),
        "out.out_cache_loc.out_swa_loc has shape [1], expected [40]",
    ),
    (build_verify_step, verify_step(kv_lens=int32(0)), "out.metadata.kv_lens has shape [1], expected [2]"),
    (
        build_verify_step,
        verify_step(swa_page_table=int32()),
        "out.metadata.swa_page_table has shape [0], expected 2 dim",
    ),
    (build_verify_step, verify_step(cu_seqlens=int32(0)), "out.metadata.cu_seqlens has shape [1], expected [3]"),
    (flatten_verify_bundle, bundle(out_full_loc=torch.zeros(40)), "out.out_full_loc has dtype Float, expected Int or"),
    (
        flatten_verify_bundle,
        bundle(out_c4_loc=int32(0)),
        "out.out_c4_loc has 1 entries, expected at least 2 (groups of",
    ),
    (
        build_compress_metadata_verify,
        metadata(c4_loc=torch.zeros(12)),
        "out.c4_loc has dtype Float, expected Int or Long",
    ),
    (
        build_compress_metadata_verify,
        metadata(start_pos=torch.zeros(2)),
        "out.start_pos has dtype Float, expected Int",
    ),
]


@pytest.mark.parametrize("wrapper, out, message", BUFFERS, ids=[message for _, _, message in BUFFERS])
def test_a_wrong_buffer_is_named_where_it_lies_in_the_result(wrapper, out, message):
    with pytest.raises(ValueError) as error:
        into(wrapper, out)
    assert str(error.value).startswith(f"{wrapper.__name__}: {message}")


def test_rope_tables_that_are_too_short_are_named_with_the_buffer():
    message = (
        r"^build_verify_step: out\.metadata\.positions_c4 reaches 8, expected 0 <= position < 5 \(rows of rope_cos\)"
    )
    with pytest.raises(IndexError, match=message):
        into(build_verify_step, verify_step(), lengths=(6, 9), rope=5)


@pytest.mark.parametrize("wrong", [12.0, torch.tensor(12), "12"], ids=str)
def test_a_number_that_is_none_leaves_nothing_behind(wrong):
    """What sizes a call has seen is kept, and 12.0 is as good a key as 12."""
    for first, second in ((12, wrong), (wrong, 12)):
        tables, requests, lengths = filled_tables(make_layout(), 0, "cpu"), int32(0, 1), int32(5, 6)
        results = []
        for num_tokens in (first, second):
            try:
                results.append(build_compress_metadata_verify(tables, requests, lengths, 4, num_tokens=num_tokens))
            except ValueError as error:
                assert num_tokens is wrong and "num_tokens" in str(error), error
        assert results and all(result.positions.shape == (12,) for result in results)


def test_a_size_that_changes_in_place_is_looked_at_again():
    tables, requests, lengths = filled_tables(make_layout(), 0, "cpu"), int32(0, 1), int32(5, 6)
    longest = torch.tensor(100)
    columns = []
    for value in (100, 300):
        longest.fill_(value)
        made = build_compress_metadata_verify(tables, requests, lengths, 4, max_seq_len=longest)
        columns.append(made.swa_page_table.shape[1])
    assert columns == [7, 19]


def test_tables_of_another_longest_request_have_other_columns():
    tables, others = (filled_tables(make_layout(), 0, "cpu") for _ in range(2))
    tables.max_context_len = 64
    widths = [
        build_compress_metadata_verify(t, int32(0), int32(5), 4).swa_page_table.shape[1] for t in (tables, others)
    ]
    assert widths == [4, 19]


def test_rope_tables_of_tokens_are_pairs_and_their_buffers_are_there():
    layout = make_layout()
    tables, requests, lengths, cos = filled_tables(layout, 0, "cpu"), int32(0, 1), int32(5, 6), torch.ones(300, 8)
    arguments = (tables, requests, lengths, 4, cos, cos)
    cases = [
        ((cos, None), r"main_rope is \['Tensor', 'NoneType'\], expected two tensors, cos and sin"),
        ((cos,), r"main_rope is \['Tensor'\], expected two tensors"),
        (cos, "main_rope is Tensor, expected two tensors"),
        ((cos.short(), cos), r"main_rope\[0\] has dtype torch.int16, expected torch.float32 or torch.float16 or "),
        ((cos[0], cos), r"main_rope\[0\] has shape \[8\], expected 2 dimensions"),
    ]
    for wrong, message in cases:
        with pytest.raises(ValueError, match=f"^build_verify_step: {message}"):
            build_verify_step(*arguments, main_rope=wrong)
        with pytest.raises(ValueError, match=f"^VerifyStep.empty: {message}"):
            VerifyStep.empty(layout, 2, 8, 8, main_rope=wrong)
    out = VerifyStep.empty(layout, 2, 8, 8, main_rope=(cos, cos))
    with pytest.raises(ValueError, match=r"^build_verify_step: out\.main_cos is a tensor, expected None without main"):
        build_verify_step(*arguments, out=out)
    with pytest.raises(ValueError, match=r"out\.compress_cos is None, expected a buffer for the rows of compress"):
        build_verify_step(*arguments, main_rope=(cos, cos), compress_rope=(cos, cos), out=out)

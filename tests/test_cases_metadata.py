"""Small steps that engines got wrong, with the right values written out: compress metadata."""

import pytest
import torch

from dsv4_npu_ops import (
    CompressMetadata,
    PageTable,
    RequestTables,
    SlotTable,
    VerifyStep,
    build_compress_metadata_decode,
    build_compress_metadata_prefill,
    build_compress_metadata_verify,
    build_verify_step,
)


@pytest.fixture
def tables():
    """Four requests whose group g of request r has slot 1000 * (r + 1) + g."""

    def slots(columns):
        return (1000 * torch.arange(1, 5)[:, None] + torch.arange(columns)).int()

    nothing = torch.zeros(4, 4, dtype=torch.int32)
    return RequestTables.of(
        dict(
            full=PageTable(nothing, 128),
            swa=PageTable(nothing, 128),
            c4=SlotTable(slots(128), 128),
            c128=SlotTable(slots(4), 128),
        ),
        max_context_len=512,
    )


def lens(*values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("committed, ratio, first", [(6, 4, 4), (126, 128, 0)])
def test_groups_rotate_at_their_first_token_in_every_form(tables, committed, ratio, first):
    request, before, after = lens(1), lens(committed), lens(committed + 4)
    steps = [
        build_compress_metadata_verify(tables, request, before, 4),
        build_compress_metadata_verify(tables, request, before, lens(4)),
        build_compress_metadata_prefill(tables, request, before, after),
    ]
    for step in steps:
        assert getattr(step, f"positions_c{ratio}").tolist()[:1] == [first]
        assert getattr(step, f"c{ratio}_loc").tolist()[:1] == [2000 + first // ratio]
    decoded = build_compress_metadata_decode(tables, request, lens((committed // ratio + 1) * ratio))
    assert getattr(decoded, f"positions_c{ratio}").tolist() == [first]


def test_a_row_of_length_zero_completes_nothing(tables):
    step = build_compress_metadata_verify(tables, lens(0, 1, 2), lens(6, 0, 127), 4)
    assert step.positions_c4.tolist() == [4, 124, 0, 0, 0, 0]
    assert step.c4_loc.tolist() == [1001, 3031, 0, 0, 0, 0]
    assert step.positions_c128.tolist() == [0, 0, 0]
    assert step.c128_loc.tolist() == [3000, 0, 0]
    assert step.cu_seqlens.tolist() == [0, 4, 8, 12]
    assert step.positions.tolist() == [6, 7, 8, 9, 0, 0, 0, 0, 127, 128, 129, 130]


@pytest.mark.parametrize(
    "prefix, new, ratio, positions",
    [(6, 6, 4, [4, 8]), (3, 5, 4, [0, 4]), (100, 60, 128, [0]), (126, 130, 128, [0, 128])],
)
def test_chunks_use_the_global_grid(tables, prefix, new, ratio, positions):
    step = build_compress_metadata_prefill(tables, lens(3), lens(prefix), lens(prefix + new))
    got = getattr(step, f"positions_c{ratio}").tolist()
    assert got[: len(positions)] == positions and not any(got[len(positions) :])
    slots = [4000 + p // ratio for p in positions]
    assert getattr(step, f"c{ratio}_loc").tolist() == slots + [0] * (len(got) - len(slots))
    assert step.start_pos.tolist() == [prefix]


def test_seqused_is_always_there(tables):
    step = build_compress_metadata_prefill(tables, lens(0, 1), lens(0, 0), lens(3, 4))
    assert (step.cu_seqlens.tolist(), step.seqused.tolist()) == ([0, 3, 7], [3, 4])
    assert build_compress_metadata_decode(tables, lens(0, 1), lens(5, 9)).seqused.tolist() == [1, 1]
    assert build_compress_metadata_decode(tables, lens(0, 1), lens(5, 0)).seqused.tolist() == [1, 0]
    assert build_compress_metadata_prefill(tables, lens(0, 1), lens(2, 7), lens(5, 7)).seqused.tolist() == [3, 0]


def test_groups_are_dense_in_batch_order(tables):
    step = build_compress_metadata_decode(tables, lens(0, 1, 2), lens(8, 5, 12))
    assert step.c4_loc.tolist() == [1001, 3002, 0]
    assert step.positions_c4.tolist() == [4, 8, 0]
    assert step.start_pos.tolist() == [7, 4, 11]
    assert step.seqused.tolist() == [1, 1, 1]


def test_padded_bucket(tables):
    step = build_compress_metadata_decode(tables, lens(2, 0, 0, 0), lens(2, 1, 0, 0))
    assert step.kv_lens.tolist() == [2, 1, 1, 1]
    assert step.cu_seqlens.tolist() == [0, 1, 2, 3, 4]
    assert step.seqused.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("joined", [False, True])
def test_an_idle_replay_is_all_dummy(tables, joined):
    """Buffers of a captured bucket: a live replay, then an idle one."""
    tables.table("c4")[0, 1], tables.table("c4")[1, 2] = 7, 9
    if joined:
        step = VerifyStep.empty(tables, 2, 8, rope_dim=2)
        metadata = step.metadata
        rope = torch.arange(1024.0).reshape(512, 2)
    else:
        metadata = CompressMetadata.empty(tables, 2, 8)

    def replay(*lengths):
        if joined:
            build_verify_step(tables, lens(0, 1), lens(*lengths), 4, rope, rope, out=step)
        else:
            build_compress_metadata_verify(tables, lens(0, 1), lens(*lengths), 4, out=metadata)

    replay(6, 10)
    assert metadata.c4_loc.tolist() == [7, 9, 0, 0]
    assert metadata.positions_c4.tolist() == [4, 8, 0, 0]
    assert metadata.start_pos.tolist() == [6, 10]
    assert metadata.seqused.tolist() == [4, 4]
    replay(0, 0)
    for buffer in (metadata.c4_loc, metadata.positions_c4, metadata.start_pos, metadata.seqused, metadata.positions):
        assert not buffer.any()
    assert metadata.kv_lens.tolist() == [1, 1]
    assert metadata.swa_page_table.tolist() == [[0, -1, -1, -1]] * 2
    if joined:
        assert step.c4_cos.tolist() == [[0.0, 1.0]] * 4
        assert not any(loc.any() for loc in step.out_cache_loc.in_order())

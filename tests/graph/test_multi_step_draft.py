"""Draft steps prepared ahead, and the draft extend before them."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ops.step_inputs import plain_pools
from reference.draft_steps import draft_steps as oracle
from reference.step import slot_of

from dsv4_npu_ops import (
    AdvancedStep,
    CompressMetadata,
    advance_step,
    build_compress_metadata_verify,
    flatten_verify_bundle,
    rope_gather,
)
from dsv4_npu_ops.graph import DraftExtend, MultiStepDraft
from graph.serving import CONTEXT, batches, filled_tables, rope_tables, tensors_of


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def slots_of(steps, pool="swa"):
    return [getattr(step.out_cache_loc, f"out_{pool}_loc").tolist() for step in steps]


def assert_steps(steps, want, pool="swa"):
    for j, step in enumerate(steps):
        assert slots_of(steps, pool)[j] == want["slots"][j]
        for name in ("positions", "kv_lens", "cos", "sin"):
            assert getattr(step, name).tolist() == want[name][j], name
        others = [loc for name, loc in tensors_of(step.out_cache_loc).items() if name != f"out_{pool}_loc"]
        assert len(others) == 5 and not any(loc.numel() for loc in others)


@given(
    data=st.data(),
    topk=st.sampled_from([1, 2, 4]),
    num_steps=st.sampled_from([1, 3]),
    pad_to=st.sampled_from([1, 3, 8, 16]),
    pool=st.sampled_from(["swa", "full"]),
)
def test_rounds_of_any_size_equal_the_oracle(data, topk, num_steps, pad_to, pool):
    tables, (cos, sin) = filled_tables(), rope_tables(0)
    reserved, dummy = topk > 1 or data.draw(st.booleans()), data.draw(st.sampled_from([0, -1]))
    sizes = dict(topk=topk, pad_to=pad_to, num_entries=10)
    draft = MultiStepDraft(tables, 6, num_steps, cos, sin, pool=pool, reserved=reserved, dummy_slot=dummy, **sizes)
    pages = plain_pools(tables)
    for _ in range(3):
        requests, lengths, _ = data.draw(batches(6, 0, False))
        flat = torch.randint(1, 1000, (len(lengths) * topk * num_steps,), dtype=torch.int32)
        batch = dict(
            seq_lens=torch.tensor(lengths, dtype=torch.int64),
            req_pool_indices=torch.tensor(requests, dtype=torch.int64),
            reservation=flat if reserved else None,
        )
        before = {name: None if values is None else values.clone() for name, values in batch.items()}
        steps = draft.prepare(**batch)
        for name, values in before.items():
            assert values is None or torch.equal(batch[name], values), name
        slots = flat.reshape(len(lengths), topk, num_steps).tolist()
        want = oracle(
            lengths,
            lambda i, k, j, slots=slots, requests=requests, lengths=lengths: (
                slots[i][k][j] if reserved else slot_of(pages, pool, requests[i], lengths[i] + j)
            ),
            cos.tolist(),
            sin.tolist(),
            topk,
            num_steps,
            CONTEXT,
            -(-len(lengths) * topk // pad_to) * pad_to,
            dummy,
        )
        assert_steps(steps, want, pool)
        # What lies behind the padded batch is dummy too.
        assert (draft.buffers.slots[:, len(lengths) * topk :] == dummy).all()
        assert (draft.buffers.kv_lens[:, len(lengths) * topk :] == 1).all()


def test_a_captured_round_reads_the_inputs_of_the_object():
    tables, rope = filled_tables(), rope_tables(0)
    draft = MultiStepDraft(tables, 4, 2, *rope, pad_to=3)
    eager = MultiStepDraft(tables, 4, 2, *rope, pad_to=3)
    assert all(step.positions.shape == (6,) for step in draft.steps)
    assert draft.prepare() is draft.steps
    assert not draft.buffers.slots.any()
    for requests, lengths in (([3, 1], [126, 399]), ([2, 2, 2, 5], [1, 0, 7, 400]), ([], [])):
        draft.fill(requests, lengths)
        draft.prepare()
        eager.prepare(int32(*lengths), req_pool_indices=int32(*requests))
        for name, tensor in tensors_of(draft.buffers).items():
            assert torch.equal(tensor, getattr(eager.buffers, name)), name


def test_a_captured_round_with_a_reservation():
    draft = MultiStepDraft(filled_tables(), 2, 2, *rope_tables(0), topk=2)
    draft.fill([0, 1], [5, 9])
    draft.reservation.copy_(int32(11, 12, 13, 14, 15, 16, 17, 18))
    assert slots_of(draft.prepare()) == [[11, 13, 15, 17], [12, 14, 16, 18]]


def test_no_two_steps_share_memory():
    draft = MultiStepDraft(filled_tables(), 3, 4, *rope_tables(0), topk=2, pad_to=4)
    areas = []
    for step in draft.prepare(int32(4, 5), reservation=int32(*range(16))):
        for tensor in (step.out_cache_loc.out_swa_loc, step.positions, step.kv_lens, step.cos, step.sin):
            assert tensor.is_contiguous()
            areas.append((tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()))
    areas.sort()
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(areas))


def test_bad_drafts():
    tables, rope = filled_tables(), rope_tables(0)
    for bad, message in (
        (dict(num_rows=0), "num_rows is 0, expected at least 1"),
        (dict(pad_to=0), "pad_to is 0, expected at least 1"),
        (dict(pool="c4"), "pool is 'c4', expected one of swa, full"),
        (dict(topk=2, reserved=False), "topk is 2, expected 1 without a reservation"),
    ):
        with pytest.raises(ValueError, match=message):
            MultiStepDraft(tables, **(dict(num_rows=2, num_steps=2, rope_cos=rope[0], rope_sin=rope[1]) | bad))
    with pytest.raises(ValueError, match="reservation is None, expected the slots of the drafts"):
        MultiStepDraft(tables, 2, 2, *rope, topk=2).prepare(int32(4))
    draft = MultiStepDraft(tables, 2, 2, *rope)
    with pytest.raises(ValueError, match="reservation is a tensor, expected None: the tables have the slots"):
        draft.prepare(int32(4), reservation=int32(1, 2))
    with pytest.raises(ValueError, match=r"fill: seq_lens\[0\] is 401 before 0 new tokens, expected at most 400"):
        draft.fill([0], [401])
    with pytest.raises(ValueError, match="slots has 2 columns, expected at least 3 x 1"):
        draft.prepare(int32(4, 5, 6), req_pool_indices=int32(0, 1, 2))


@given(data=st.data())
def test_draft_extend_equals_eager_ops(data):
    tables, rope = filled_tables(), rope_tables(0, dtype=torch.bfloat16)
    extend = DraftExtend(tables, 4, 5, *rope)
    tensors = tensors_of(extend.metadata) | {"swa": extend.swa_slots, "cos": extend.cos, "sin": extend.sin}
    for tensor in tensors.values():
        tensor.fill_(-77)
    for _ in range(2):
        batch = data.draw(batches(4, 5, True))
        extend.fill(*batch)
        extend.refresh()
        rows = [int32(*(values + [0] * (4 - len(values)))) for values in batch]
        want = build_compress_metadata_verify(tables, *rows, out=CompressMetadata.empty(tables.layout, 4, 20))
        for name in ("start_pos", "seqused", "cu_seqlens", "positions", "kv_lens", "swa_page_table"):
            assert torch.equal(getattr(extend.metadata, name), getattr(want, name)), name
        for name in ("c4_loc", "c128_loc", "c4_page_table", "c128_state_page_table"):
            assert getattr(extend.metadata, name).numel() == 0, name
        loc = flatten_verify_bundle(tables, *rows, num_tokens=20)
        assert torch.equal(extend.swa_slots, loc.out_swa_loc)
        cos, sin = rope_gather(*rope, want.positions)
        assert torch.equal(extend.cos, cos) and torch.equal(extend.sin, sin)


def test_draft_extend_needs_a_window():
    with pytest.raises(ValueError, match=r"RequestTables.select: pool is 'swa', expected one of full, c4"):
        DraftExtend(filled_tables(pools=("full", "c4")), 2, 2, *rope_tables(0))


def test_lengths_that_only_the_device_knows_feed_the_next_round():
    """An advanced step writes the inputs of draft extend and of the draft: the host fills nothing."""
    tables, rope = filled_tables(), rope_tables(0)
    extend, draft = DraftExtend(tables, 3, 4, *rope), MultiStepDraft(tables, 3, 2, *rope)
    requests, lengths, accepted = int32(4, 0, 2), int32(126, 0, 7), int32(3, 0, 1)
    for inputs in (extend.inputs, draft.inputs):
        inputs.req_pool_indices.copy_(requests)
    extend.inputs.seq_lens.copy_(lengths)
    out = AdvancedStep.empty(tables.layout, 3, seq_lens=draft.inputs.seq_lens, token_dtype=torch.int32)
    out.extend_lens = extend.inputs.widths
    advance_step(tables, requests, lengths, accepted, torch.arange(12, dtype=torch.int32).reshape(3, 4), out=out)
    extend.refresh()
    assert extend.metadata.positions.tolist() == [126, 127, 128, 7, *[0] * 8]
    steps = draft.prepare()
    assert [step.positions.tolist() for step in steps] == [[129, 0, 8], [130, 0, 9]]
    pages = plain_pools(tables)
    assert slots_of(steps) == [
        [slot_of(pages, "swa", 4, p), 0, slot_of(pages, "swa", 2, q)] for p, q in ((129, 8), (130, 9))
    ]

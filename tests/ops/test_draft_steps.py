"""All steps of a multi-step draft against their oracle."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from backends import BACKEND, opcheck
from hypothesis import given
from hypothesis import strategies as st
from ops.any_tables import INTEGERS, Tables
from ops.step_inputs import filled_tables
from reference.draft_steps import draft_steps as oracle
from reference.step import slot_of

from dsv4_npu_ops import DraftSteps, KVLayout, PageTable, RequestTables, build_draft_steps

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
DUMMIES = st.sampled_from([0, -1, 9, 1 << 20])


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def rope_tables(max_pos, dim, dtype=torch.float32):
    generator = torch.Generator().manual_seed(max_pos)
    return [torch.randn(max_pos, dim, generator=generator).to(dtype) for _ in range(2)]


def fields_of(steps):
    return {field.name: getattr(steps, field.name) for field in dataclasses.fields(steps)}


def poisoned(num_steps, num_entries, dim, dtype=torch.float32):
    buffers = DraftSteps.empty(num_steps, num_entries, dim, dtype=dtype)
    for tensor in fields_of(buffers).values():
        tensor.fill_(-77)
    return buffers


def assert_equal(got, want):
    for name, tensor in fields_of(got).items():
        assert tensor.tolist() == want[name], name


def random_slots(count, seed):
    """Slots of which some are nobody's: 0 or less."""
    generator = torch.Generator().manual_seed(seed)
    slots = torch.randint(1, 1 << 20, (count,), generator=generator, dtype=torch.int32)
    holes = torch.rand(count, generator=generator)
    slots[holes < 0.3] = 0
    slots[holes < 0.2] = -1
    return slots


def reserved(reservation, topk, num_steps):
    """Slot of a draft in a reservation laid out (request, topk, step), for the oracle."""
    flat = reservation.tolist()

    def slot(request, draft, step):
        found = flat[(request * topk + draft) * num_steps + step]
        return found if found > 0 else None

    return slot


@st.composite
def drafts(draw):
    """Lengths of a batch and sizes of its draft; lengths near the context's end and padding among them."""
    context = draw(st.one_of(st.integers(1, 12), st.integers(30, 70)))
    length = st.one_of(st.just(0), st.integers(0, context), st.integers(max(0, context - 6), context))
    lengths = draw(st.lists(length, max_size=9))
    topk, num_steps = draw(st.sampled_from([1, 1, 2, 3, 8])), draw(st.sampled_from([1, 2, 3, 5, 9]))
    tail = draw(st.sampled_from([0, 0, 1, 5, 40]))
    return context, lengths, topk, num_steps, len(lengths) * topk + tail


@given(
    case=drafts(),
    dim=st.sampled_from([1, 2, 7, 16, 24]),
    dtype=st.sampled_from(DTYPES),
    length_dtype=st.sampled_from(INTEGERS),
    extra=st.sampled_from([0, 3]),
    seed=st.integers(0, 1 << 30),
    dummy=DUMMIES,
)
def test_a_reservation_equals_the_oracle(device, case, dim, dtype, length_dtype, extra, seed, dummy):
    context, lengths, topk, num_steps, entries = case
    cos, sin = rope_tables(context + 2, dim, dtype)
    reservation = random_slots(len(lengths) * topk * num_steps + extra, seed)
    slots = reserved(reservation, topk, num_steps)
    want = oracle(lengths, slots, cos.tolist(), sin.tolist(), topk, num_steps, context, entries, dummy)
    arguments = (torch.tensor(lengths, dtype=length_dtype, device=device), cos, sin, num_steps)
    sizes = dict(topk=topk, reservation=reservation, max_context_len=context, dummy_slot=dummy)
    assert_equal(build_draft_steps(*arguments, **sizes, num_entries=entries), want)
    out = poisoned(num_steps, entries, dim, dtype)
    assert build_draft_steps(*arguments, **sizes, out=out) is out
    assert_equal(out, want)


@given(
    case=drafts(), dtypes=st.tuples(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS)), dummy=DUMMIES, data=st.data()
)
def test_any_tables_equal_the_oracle(device, case, dtypes, dummy, data):
    context, lengths, _, num_steps, _ = case
    pool, indexed = data.draw(st.sampled_from(["full", "swa"])), data.draw(st.booleans())
    num_requests = data.draw(st.integers(1, 5)) if indexed else max(1, len(lengths))
    seed = data.draw(st.integers(0, 1 << 30))
    rows = [(length, min(num_steps, context - length), 0) for length in lengths if length]
    tables = Tables(seed, device, num_requests, context, 20, SimpleNamespace(rows=rows))
    for name in ("full", "swa") if pool == "swa" and data.draw(st.booleans()) else (pool,):
        tables.add(data.draw, name, small=True)
    # The index of a padding row is never used, so that it may be anything.
    requests = [
        data.draw(st.integers(0, num_requests - 1) if length else st.integers(-9, 999)) if indexed else row
        for row, length in enumerate(lengths)
    ]
    entries = len(lengths) + data.draw(st.sampled_from([0, 7]))
    cos, sin = rope_tables(context, 8)
    want = oracle(
        lengths,
        lambda request, k, step: slot_of(tables.plain, pool, requests[request], lengths[request] + step),
        cos.tolist(),
        sin.tolist(),
        1,
        num_steps,
        context,
        entries,
        dummy,
    )
    got = build_draft_steps(
        torch.tensor(lengths, dtype=dtypes[0], device=device),
        cos,
        sin,
        num_steps,
        tables=tables.request_tables(),
        req_pool_indices=torch.tensor(requests, dtype=dtypes[1], device=device) if indexed else None,
        pool=pool,
        dummy_slot=dummy,
        out=poisoned(num_steps, entries, 8),
    )
    assert_equal(got, want)


def test_the_worked_example(device):
    """Two requests, topk 2, three steps, a context of 12, one dummy request and one entry of padding."""
    cos, sin = rope_tables(12, 4)
    slots = int32(*range(101, 119))
    got = build_draft_steps(int32(4, 0, 10), cos, sin, 3, topk=2, reservation=slots, num_entries=7)
    assert got.slots.tolist() == [
        [101, 104, 0, 0, 113, 116, 0],
        [102, 105, 0, 0, 114, 117, 0],
        [103, 106, 0, 0, 0, 0, 0],
    ]
    assert got.positions.tolist() == [[4, 4, 0, 0, 10, 10, 0], [5, 5, 0, 0, 11, 11, 0], [6, 6, 0, 0, 0, 0, 0]]
    assert got.kv_lens.tolist() == [[5, 5, 1, 1, 11, 11, 1], [6, 6, 1, 1, 12, 12, 1], [7, 7, 1, 1, 1, 1, 1]]
    assert torch.equal(got.cos, cos[got.positions]) and torch.equal(got.sin, sin[got.positions])


def test_many_requests_and_long_rows(device):
    """More than one tile of requests or of dummies, no RoPE rows, and rows of which only some steps fit into a core."""
    for rows, topk, num_steps, dim, tail in (
        (400, 1, 3, 16, 0),
        (50, 5, 4, 8, 3),
        (3, 1, 11, 2048, 0),
        (300, 1, 2, 0, 800),
        (0, 2, 3, 4, 900),
    ):
        context = 40
        lengths = torch.arange(rows) % (context + 1)
        cos, sin = rope_tables(context, dim)
        reservation = random_slots(rows * topk * num_steps, rows)
        got = build_draft_steps(
            lengths, cos, sin, num_steps, topk=topk, reservation=reservation, num_entries=rows * topk + tail
        )
        rows_of_rope = [[p] for p in range(context)]
        want = oracle(
            lengths.tolist(),
            reserved(reservation, topk, num_steps),
            rows_of_rope,
            rows_of_rope,
            topk,
            num_steps,
            context,
            rows * topk + tail,
        )
        for name in ("slots", "positions", "kv_lens"):
            assert getattr(got, name).tolist() == want[name], name
        assert torch.equal(got.cos, cos[got.positions]) and torch.equal(got.sin, sin[got.positions])


@pytest.mark.parametrize("rows, num_steps", [(500, 3), (200, 40)])
def test_many_requests_of_a_table(device, rows, num_steps):
    """More requests, or more steps of them, than a tile of slots takes, one of which is a block table's row."""
    context = 300
    generator = torch.Generator().manual_seed(7)
    pages = torch.randint(0, 1 << 15, (rows, 19), generator=generator, dtype=torch.int32)
    tables = RequestTables.of({"swa": PageTable(pages.to(device), 16)}, max_context_len=context)
    cos, sin = rope_tables(context, 4)
    lengths = torch.arange(rows, device=device) % (context + 1)
    got = build_draft_steps(lengths, cos, sin, num_steps, tables=tables, dummy_slot=-1)
    want = [
        [
            int(pages[i, (n + j) // 16]) * 16 + (n + j) % 16
            if n and n + j < context and pages[i, (n + j) // 16]
            else -1
            for i, n in enumerate(lengths.tolist())
        ]
        for j in range(num_steps)
    ]
    assert got.slots.tolist() == want


def make_tables():
    layout = KVLayout(page_size=16, max_requests=4, max_context_len=300, num_pages={"full": 8, "swa": 8})
    return filled_tables(layout, 0, "cpu")


BAD_ARGUMENTS = [
    (dict(lens=torch.zeros(2)), "seq_lens has dtype Float, expected Int or Long"),
    (dict(lens=int32(5, 0, 6, 0)[::2]), "seq_lens has strides [2]"),
    (dict(num_steps=0), "num_steps is 0, expected at least 1"),
    (dict(topk=0), "topk is 0, expected at least 1"),
    (dict(topk=2), "reservation has 6 entries, expected at least 2 x 2 x 3 (requests, topk, steps)"),
    (dict(max_context_len=0), "max_context_len is 0, expected at least 1"),
    (dict(max_context_len=2**31 - 3), "max_context_len is 2147483645 and num_steps 3, expected at most 2147483647"),
    (dict(max_context_len=301), "rope_cos has 300 rows, expected at least 301 (max_context_len)"),
    (dict(reservation=int32(*range(5))), "reservation has 5 entries, expected at least 2 x 1 x 3"),
    (dict(reservation=torch.zeros(6, dtype=torch.int64)), "reservation has dtype Long, expected Int"),
    (dict(reservation=torch.zeros(2, 3, dtype=torch.int32)), "reservation has shape [2, 3], expected 1 dimension"),
    (
        dict(reservation=None),
        "reservation is None and pool is -1, expected a reservation, or pool 0 (full) or 1 (swa) of",
    ),
    (dict(reservation=None, tables=make_tables(), requests=int32(0, 1, 2)), "req_pool_indices has shape [3], expected"),
    (dict(reservation=None, tables=make_tables().select("full")), "pool is swa, expected one that exists"),
    (
        dict(reservation=None, tables=make_tables(), requests=torch.zeros(2)),
        "req_pool_indices has dtype Float, expected",
    ),
    (dict(dummy_slot=2**31), "dummy_slot is 2147483648, expected -2147483647 to 2147483647"),
    (
        dict(reservation=None, tables=make_tables(), requests=int32(0, 1), topk=2, entries=8),
        "topk is 2, expected 1 without a reservation",
    ),
    (dict(tables=make_tables(), pool="c4"), "pool is 'c4', expected one of full, swa"),
    (dict(cos=torch.zeros(300)), "rope_cos has shape [300], expected 2 dimensions"),
    (dict(cos=torch.zeros(300, 4).double()), "rope_cos has dtype Double, expected Float or Half or BFloat16"),
    (dict(sin=torch.zeros(300, 4).half()), "rope_sin has dtype Half, expected Float"),
    (dict(sin=torch.zeros(299, 4)), "rope_sin has shape [299, 4], expected [300, 4]"),
    (dict(sin=torch.zeros(300, 8)[:, ::2]), "rope_sin has strides [8, 2]"),
    (dict(slots=int32(0)), "out.slots has shape [1], expected 2 dimensions"),
    (
        dict(slots=torch.zeros(3, 1, dtype=torch.int32)),
        "out.slots has 1 columns, expected at least 2 x 1 (requests, topk)",
    ),
    (dict(slots=torch.zeros(2, 4, dtype=torch.int32)), "out.slots has shape [2, 4], expected [3, 4]"),
    (dict(slots=torch.zeros(3, 4)), "out.slots has dtype Float, expected Int"),
    (dict(positions=torch.zeros(3, 4, dtype=torch.int32)), "out.positions has dtype Int, expected Long"),
    (dict(kv_lens=torch.zeros(3, 8, dtype=torch.int32)[:, ::2]), "out.kv_lens has strides [8, 2]"),
    (dict(cos_out=torch.zeros(3, 4, 5)), "out.cos has shape [3, 4, 5], expected [3, 4, 4]"),
    (dict(sin_out=torch.zeros(3, 4, 4).half()), "out.sin has dtype Half, expected Float"),
]

# What a device cannot know before it runs.
BAD_VALUES = [
    (dict(lens=int32(5, -1)), "seq_lens[1] is -1, expected at least 0"),
    (dict(lens=int32(301, 2)), "seq_lens[0] is 301, expected at most 300 (max_context_len)"),
    (
        dict(reservation=None, tables=make_tables(), requests=int32(0, 4)),
        "req_pool_indices[1] is 4, expected 0 <= index < 4 (rows of the tables)",
    ),
    (
        dict(reservation=None, tables=make_tables(), lens=int32(0, 0, 0, 0, 1), entries=5),
        "seq_lens has a length in row 4, expected at most 4 rows (those of the tables)",
    ),
]


@pytest.mark.parametrize(
    "bad, message", [*BAD_ARGUMENTS, *(pytest.param(*case, marks=pytest.mark.cpu_only) for case in BAD_VALUES)]
)
def test_bad_calls_raise_and_write_nothing(bad, message):
    arguments = dict(
        seq_lens=bad.get("lens", int32(5, 6)),
        rope_cos=bad.get("cos", torch.zeros(300, 4)),
        rope_sin=bad.get("sin", torch.zeros(300, 4)),
        num_steps=bad.get("num_steps", 3),
        topk=bad.get("topk", 1),
        reservation=bad.get("reservation", int32(*range(6))),
        tables=bad.get("tables"),
        req_pool_indices=bad.get("requests"),
        pool=bad.get("pool", "swa"),
        max_context_len=bad.get("max_context_len"),
        dummy_slot=bad.get("dummy_slot", 0),
    )
    out = poisoned(3, bad.get("entries", 4), 4)
    for name in ("slots", "positions", "kv_lens", "cos_out", "sin_out"):
        if name in bad:
            setattr(out, name.removesuffix("_out"), bad[name])
    before = {name: tensor.clone() for name, tensor in fields_of(out).items()}
    with pytest.raises(ValueError) as error:
        build_draft_steps(**arguments, out=out)
    assert f"build_draft_steps: {message}" in str(error.value)
    for name, tensor in fields_of(out).items():
        assert torch.equal(before[name], tensor), name


@pytest.mark.device_only
def test_bad_rows_are_padding_and_leave_an_error_word(ascend_sim):
    tables, (cos, sin) = make_tables(), rope_tables(300, 8)
    for lengths, requests, lane in (
        ([5, -1, 7], [0, 1, 2], [9, 1, 1, -1]),
        ([5, 6, 301], [0, 1, 2], [9, 4, 2, 301]),
        ([5, 6, 7], [4, 1, 2], [9, 6, 0, 4]),
    ):
        good = [length if 0 <= length <= 300 and request < 4 else 0
                for length, request in zip(lengths, requests, strict=True)]  # fmt: skip
        got, want = (
            build_draft_steps(torch.tensor(values), cos, sin, 3, tables=tables, req_pool_indices=torch.tensor(requests))
            for values in (lengths, good)
        )
        for name, tensor in fields_of(got).items():
            assert torch.equal(tensor, getattr(want, name)), name
        assert ascend_sim.take_errors() == [[*lane, 0, 0, 0, 0]]


@pytest.mark.simulated_only
def test_simulated_traffic_is_what_must_move(ascend_sim):
    rows, topk, num_steps, dim = 64, 2, 3, 64
    cos, sin = rope_tables(300, dim)
    reservation = random_slots(rows * topk * num_steps, 1)
    got = build_draft_steps(torch.arange(rows) + 5, cos, sin, num_steps, topk=topk, reservation=reservation)
    assert torch.equal(got.slots, reservation.clamp(min=0).reshape(rows * topk, num_steps).T)
    (counters,) = ascend_sim.take_counters()
    assert counters["mte3_bytes"] == sum(tensor.nbytes for tensor in fields_of(got).values())
    # Lengths, slots, and each request's RoPE rows once; the row of dummies once a block.
    rope_bytes = 2 * 4 * dim * (rows * num_steps + counters["blocks"])
    assert counters["mte2_bytes"] == 8 * rows + reservation.nbytes + rope_bytes
    # No block has more than one request more than another.
    request_bytes = (counters["mte2_bytes"] + counters["mte3_bytes"]) / rows
    assert counters["balance"]["most_bytes"] - counters["balance"]["least_bytes"] <= request_bytes


def test_bad_sizes():
    with pytest.raises(ValueError, match=r"DraftSteps\.empty: num_steps, num_entries and rope_dim are 2, -1 and 4"):
        DraftSteps.empty(2, -1, 4)
    with pytest.raises(ValueError, match="num_steps, num_entries and rope_dim are 1, -1 and 2, expected at least 0"):
        build_draft_steps(int32(), torch.zeros(9, 2), torch.zeros(9, 2), 1, reservation=int32(), num_entries=-1)
    with pytest.raises(ValueError, match=r"draft_steps: rope_cos has shape \[9\], expected 2 dimensions"):
        build_draft_steps(int32(), torch.zeros(9), torch.zeros(9), 1, reservation=int32())


@pytest.mark.one_variant
@pytest.mark.parametrize("from_table", [False, True])
def test_opcheck(device, from_table):
    (cos, sin), empty = rope_tables(300, 4), RequestTables.of({}, max_context_len=300)
    tables = make_tables() if from_table else empty
    requests, reservation = (int32(0, 3), None) if from_table else (None, int32(*range(6)))
    lengths, pool = torch.tensor([126, 7], device=device), 1 if from_table else -1
    arguments = (*tables.op_token_pools, requests, reservation, lengths, cos, sin, pool, 1, 3, 300, -1)
    opcheck(torch.ops.dsv4_npu_ops.draft_steps.default, arguments, fields_of(poisoned(3, 4, 4)))


def test_drafts_in_more_pages_than_a_ring_has_columns_are_refused(device):
    """Found by an exploration: a kernel read behind the row."""
    ring = PageTable(torch.tensor([[5, 6]], dtype=torch.int32, device=device), 1)
    tables = RequestTables.of({"swa": ring}, max_context_len=8)
    cos, sin = rope_tables(8, 2)
    arguments = (torch.tensor([1], device=device), cos, sin)
    two = build_draft_steps(*arguments, 2, tables=tables, dummy_slot=-9)
    assert two.slots.tolist() == [[6], [5]]
    if BACKEND == "cpu":
        message = "build_draft_steps: row 0 of 1 tokens has its 3 drafts in more pages than the table of swa has"
        with pytest.raises(ValueError, match=message):
            build_draft_steps(*arguments, 3, tables=tables)


@pytest.mark.device_only
def test_on_a_device_such_drafts_are_dummies_and_leave_an_error_word(ascend_sim):
    tables = RequestTables.of({"swa": PageTable(int32(5, 6).view(1, 2), 1)}, max_context_len=8)
    got = build_draft_steps(torch.tensor([1]), *rope_tables(8, 2), 3, tables=tables, dummy_slot=-9)
    assert got.slots.tolist() == [[-9]] * 3 and got.kv_lens.tolist() == [[1]] * 3
    assert ascend_sim.take_errors() == [[9, 9, 0, 1, 0, 0, 0, 0]]

"""All steps of a draft into buffers of each step, against their oracle."""

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from ops.any_tables import INTEGERS
from reference.draft_steps import drafts_apart as oracle

from dsv4_npu_ops.ops.draft_steps import DraftStepsApart

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FIELDS = ("slots", "kv_lens", "cu_seqlens", "rope_rows")
apart = torch.ops.dsv4_npu_ops.draft_steps.apart


def rope_tables(max_pos, dim, bases, dtype=torch.float32):
    generator = torch.Generator().manual_seed(max_pos)
    return [torch.randn(max_pos, dim, generator=generator).to(dtype) for _ in range(2 * bases)]


def buffers(num_steps, entries, rope, *, pairs=False, offsets=True):
    """Poisoned, in the order of FIELDS, each with one entry behind that must stay."""

    def poisoned(*shape, dtype=torch.int32):
        return torch.full(shape, -77, dtype=dtype)

    slots = [poisoned(entries + 1, *([2] if pairs else [])) for _ in range(num_steps)]
    kv_lens = [poisoned(entries + 1) for _ in range(num_steps)]
    cu_seqlens = [poisoned(entries + 2) for _ in range(num_steps if offsets else 0)]
    rows = [poisoned(entries + 1, t.shape[1], dtype=t.dtype) for t in rope for _ in range(num_steps)]
    return slots, kv_lens, cu_seqlens, rows


def without_last(lists):
    return [[tensor[:-1] for tensor in tensors] for tensors in lists]


def assert_as(want, given, rope, *, block_size, pairs):
    slots, kv_lens, cu_seqlens, rows = given
    steps, entries = len(want), len(want[0])
    for step, of_step in enumerate(want):
        flat = [slot for slot, _, _ in of_step]
        pages = [[slot // block_size, slot % block_size] for slot in flat]
        assert slots[step][:-1].tolist() == (pages if pairs else flat), step
        assert kv_lens[step][:-1].tolist() == [keys for _, _, keys in of_step], step
        positions = torch.tensor([position for _, position, _ in of_step])
        for i, table in enumerate(rope):
            assert torch.equal(rows[i * steps + step][:-1], table[positions]), (step, i)
    assert all(offsets[:-1].tolist() == list(range(entries + 1)) for offsets in cu_seqlens)
    assert all((tensor[-1] == -77).all() for tensors in given for tensor in tensors)


@st.composite
def batches(draw):
    """Positions near the end and padding among them, lengths that have nothing to do with them, also none that a
    request could have, a table with holes."""
    context, block_size = draw(st.integers(2, 70)), draw(st.sampled_from([1, 2, 16, 64]))
    most = 2**31 - 1
    newest = st.one_of(
        st.sampled_from([-1, most]), st.integers(0, context - 1), st.integers(max(0, context - 6), context + 3)
    )
    last = draw(st.lists(newest, max_size=40))
    length = st.one_of(st.integers(0, context), st.integers(-2, 3 * context), st.sampled_from([-most - 1, most]))
    lengths = [draw(length) for _ in last]
    columns = -(-context // block_size) + draw(st.integers(0, 2))
    block = st.one_of(st.integers(1, 1 << 20), st.sampled_from([0, -1]))
    table = draw(st.lists(st.lists(block, min_size=columns, max_size=columns), min_size=len(last) or 1, max_size=41))
    return context, block_size, last, lengths, table + table[:1] * (len(last) - len(table))


@given(
    batch=batches(),
    num_steps=st.sampled_from([1, 2, 3, 5, 16]),
    tail=st.sampled_from([0, 0, 1, 5, 300]),
    dim=st.sampled_from([1, 2, 7, 16, 64]),
    bases=st.integers(0, 2),
    dtype=st.sampled_from(DTYPES),
    integers=st.tuples(*[st.sampled_from(INTEGERS)] * 3),
    pairs=st.booleans(),
    offsets=st.booleans(),
    dummy=st.sampled_from([0, -1, 9]),
)
def test_all_steps_equal_the_oracle(device, batch, num_steps, tail, dim, bases, dtype, integers, pairs, offsets, dummy):
    context, block_size, last, lengths, table = batch
    entries = max(1, len(last) + tail)
    rope = rope_tables(context + 2, dim, bases, dtype)
    given = buffers(num_steps, entries, rope, pairs=pairs, offsets=offsets)
    rows = [torch.tensor(values, dtype=kind) for values, kind in zip((table, last, lengths), integers, strict=True)]
    apart(*rows, rope, block_size, context, dummy, *without_last(given))
    want = oracle(table, last, lengths, block_size, num_steps, context, entries, dummy)
    assert_as(want, given, rope, block_size=block_size, pairs=pairs)


def test_the_worked_example(device):
    """A request in blocks 7 and 9 of 4 slots, padding, one whose drafts reach the context, and an entry behind them."""
    (cos, sin), table = rope_tables(8, 4, 1), torch.tensor([[7, 9], [5, 5], [3, 4]], dtype=torch.int32)
    slots, keys, offsets, rows = buffers(3, 4, [cos, sin], pairs=True)
    last, lengths = torch.tensor([2, -1, 5]), torch.tensor([4, 0, 7])
    apart(table, last, lengths, [cos, sin], 4, 8, -1, *without_last((slots, keys, offsets, rows)))
    assert [step[:-1].tolist() for step in slots] == [
        [[7, 3], [-1, 3], [4, 2], [-1, 3]],
        [[9, 0], [-1, 3], [4, 3], [-1, 3]],
        [[9, 1], [-1, 3], [-1, 3], [-1, 3]],
    ]
    assert [step[:-1].tolist() for step in keys] == [[5, 0, 8, 0], [6, 0, 1, 0], [7, 0, 2, 0]]
    assert [step[:-1].tolist() for step in offsets] == [[0, 1, 2, 3, 4]] * 3
    assert torch.equal(rows[0][:-1], cos[[3, 0, 6, 0]]) and torch.equal(rows[5][:-1], sin[[5, 0, 0, 0]])


def test_numbers_that_no_request_has(device):
    """As int64, where one more would be a negative one."""
    most, rope = 2**63 - 1, rope_tables(8, 4, 1)
    table, last, lengths = [[7, 9]] * 4, [most, 2, 2, 2], [3, most, -most - 1, 2**32 + 3]
    given = buffers(3, 4, rope)
    rows = torch.tensor(table), torch.tensor(last), torch.tensor(lengths)
    apart(*rows, rope, 4, 8, -1, *without_last(given))
    want = oracle(table, last, lengths, 4, 3, 8, 4, -1)
    assert_as(want, given, rope, block_size=4, pairs=False)


def test_many_requests(device):
    """More than a tile of requests, and of dummies, and rows of which only some steps fit into a core."""
    for rows, num_steps, dim, tail in ((400, 3, 64, 0), (40, 14, 2048, 3), (300, 2, 8, 700)):
        context, block_size = 90, 8
        rope = rope_tables(context, dim, 2)
        generator = torch.Generator().manual_seed(rows)
        table = torch.randint(1, 1 << 15, (rows, 12), generator=generator, dtype=torch.int32)
        last = torch.arange(rows, dtype=torch.int32) % (context + 1) - 1
        lengths = (torch.arange(rows, dtype=torch.int32) * 7) % (context + 1)
        given = buffers(num_steps, rows + tail, rope, pairs=True)
        apart(table, last, lengths, rope, block_size, context, -1, *without_last(given))
        want = oracle(table.tolist(), last.tolist(), lengths.tolist(), block_size, num_steps, context, rows + tail, -1)
        assert_as(want, given, rope, block_size=block_size, pairs=True)


def call(**changed):
    """A call of two requests, two steps and one base, with other arguments here and there."""
    rope = rope_tables(32, 4, 1)
    slots, kv_lens, cu_seqlens, rows = without_last(buffers(2, 3, rope))
    arguments = dict(
        block_table=torch.tensor([[1, 2], [3, 4]], dtype=torch.int32),
        last_positions=torch.tensor([5, 6]),
        seq_lens=torch.tensor([6, 7]),
        rope=rope,
        block_size=16,
        max_context_len=32,
        dummy_slot=-1,
        slots=slots,
        kv_lens=kv_lens,
        cu_seqlens=cu_seqlens,
        rope_rows=rows,
    )
    return arguments | changed


BAD_ARGUMENTS = [
    (dict(seq_lens=torch.zeros(2)), "seq_lens has dtype Float, expected Int or Long"),
    (dict(last_positions=torch.zeros(3, dtype=torch.int32)), "last_positions has shape [3], expected [2]"),
    (dict(last_positions=torch.zeros(2)), "last_positions has dtype Float"),
    (dict(block_table=torch.zeros(2, dtype=torch.int32)), "block_table has shape [2], expected 2 dimensions"),
    (dict(block_table=torch.zeros(1, 2, dtype=torch.int32)), "block_table has 1 rows, expected at least 2 (requests)"),
    (dict(block_table=torch.zeros(2, 2)), "block_table has dtype Float"),
    (dict(block_table=torch.zeros(2, 4, dtype=torch.int32)[:, ::2]), "block_table has strides [4, 2]"),
    (dict(block_table=torch.zeros(2, 1, dtype=torch.int32)), "block_table has 1 columns of 16 slots, expected room"),
    (dict(block_size=12), "block_size is 12, expected a power of two"),
    (dict(max_context_len=0), "max_context_len is 0, expected at least 1"),
    (dict(max_context_len=33), "block_table has 2 columns of 16 slots, expected room for 33 (max_context_len)"),
    (dict(max_context_len=2**31 - 2), "max_context_len is 2147483646 and num_steps 2, expected at most 2147483647"),
    (dict(dummy_slot=-(2**31)), "dummy_slot is -2147483648, expected -2147483647 to 2147483647"),
    (dict(slots=[]), "slots has 0 tensors, expected 1 to 16 (steps)"),
    (dict(slots=[torch.zeros(3, dtype=torch.int32)] * 17), "slots has 17 tensors, expected 1 to 16 (steps)"),
    (dict(slots=[torch.zeros(3, 3, dtype=torch.int32)] * 2), "slots has shape [3, 3], expected [N], or [N, 2]"),
    (dict(slots=[torch.zeros(1, dtype=torch.int32)] * 2), "slots has 1 entries, expected at least 2 (requests)"),
    (dict(slots=[torch.zeros(0, dtype=torch.int32)] * 2), "entries of slots is 0, expected at least 1"),
    (dict(slots=[torch.zeros(3), torch.zeros(3)]), "slots[0] has dtype Float, expected Int"),
    (dict(slots=[torch.zeros(3, dtype=torch.int32)] * 3), "kv_lens has 2 tensors, expected 3 (steps)"),
    (
        dict(kv_lens=[torch.zeros(3, dtype=torch.int32), torch.zeros(6, dtype=torch.int32)[::2]]),
        "kv_lens[1] has strides [2]",
    ),
    (dict(cu_seqlens=[torch.zeros(4, dtype=torch.int32)]), "cu_seqlens has 1 tensors, expected 2 (steps)"),
    (dict(cu_seqlens=[torch.zeros(3, dtype=torch.int32)] * 2), "cu_seqlens[0] has shape [3], expected [4]"),
    (dict(rope=rope_tables(32, 4, 1)[:1]), "rope has 1 tensors, expected cosines and sines of up to 2 bases"),
    (dict(rope=rope_tables(32, 4, 3)), "rope has 6 tensors, expected cosines and sines of up to 2 bases"),
    (dict(rope=rope_tables(32, 4, 2)), "rope_rows has 4 tensors, expected 8 (rope and steps)"),
    (dict(rope=rope_tables(31, 4, 1)), "rope[0] has 31 rows, expected at least 32 (max_context_len)"),
    (dict(rope=[torch.zeros(32, 4), torch.zeros(33, 4)]), "rope[1] has shape [33, 4], expected [32, 4]"),
    (dict(rope=[torch.zeros(32, 4).double()] * 2), "rope[0] has dtype Double, expected Float or Half or BFloat16"),
    (dict(rope_rows=[torch.zeros(3, 5)] * 4), "rope_rows[0] has shape [3, 5], expected [3, 4]"),
]

# Lengths in their place, and shared with the second step.
LENGTHS = torch.tensor([6, 7, 0, 0], dtype=torch.int32)
BAD_ARGUMENTS += [
    (
        dict(seq_lens=LENGTHS[:2], kv_lens=[LENGTHS[:3], torch.zeros(3, dtype=torch.int32)]),
        "kv_lens[0] overlaps seq_lens, expected another tensor",
    ),
    (
        dict(last_positions=LENGTHS[:2], kv_lens=[torch.zeros(3, dtype=torch.int32), LENGTHS[1:]]),
        "kv_lens[1] overlaps last_positions, expected another tensor",
    ),
]

# What a device cannot know before it runs.
BAD_VALUES = [
    (dict(last_positions=torch.tensor([5, -2])), "last_positions[1] is -2, expected at least -1 (padding)"),
]


@pytest.mark.parametrize(
    "bad, message", [*BAD_ARGUMENTS, *(pytest.param(*case, marks=pytest.mark.cpu_only) for case in BAD_VALUES)]
)
def test_bad_calls_raise_and_write_nothing(bad, message):
    arguments = call(**bad)
    before = {name: [tensor.clone() for tensor in arguments[name]] for name in FIELDS}
    with pytest.raises(ValueError) as error:
        apart(**arguments)
    assert f"draft_steps: {message}" in str(error.value)
    for name in FIELDS:
        assert all(map(torch.equal, before[name], arguments[name])), name


@pytest.mark.device_only
def test_bad_rows_are_padding_and_leave_an_error_word(ascend_sim):
    calls = [call(last_positions=torch.tensor(values)) for values in ([5, -2], [5, -1])]
    for arguments in calls:
        apart(**arguments)
    for name in FIELDS:
        assert all(map(torch.equal, calls[0][name], calls[1][name])), name
    assert ascend_sim.take_errors() == [[9, 1, 1, -2, 0, 0, 0, 0]]


@pytest.mark.simulated_only
def test_simulated_traffic_is_what_must_move(ascend_sim):
    rows, num_steps, dim, context = 64, 3, 64, 4096
    rope = rope_tables(context, dim, 2)
    table = torch.randint(1, 1 << 15, (rows, context // 128), dtype=torch.int32)
    given = without_last(buffers(num_steps, rows, rope, pairs=True))
    last, lengths = torch.arange(rows) * 60 + 8, torch.arange(rows) + 9
    apart(table, last, lengths, rope, 128, context, -1, *given)
    (counters,) = ascend_sim.take_counters()
    assert counters["mte3_bytes"] == sum(tensor.nbytes for tensors in given for tensor in tensors)
    # Positions, lengths, a block or two of each request, and its RoPE rows once; the rows of dummies once a block.
    blocks = sum(2 if (n + 1) // 128 != (n + num_steps) // 128 else 1 for n in last.tolist())
    rope_bytes = 4 * 4 * dim * (rows * num_steps + counters["blocks"])
    assert counters["mte2_bytes"] == 16 * rows + 4 * blocks + rope_bytes


def test_a_bound_call_takes_new_rows_each_time(device):
    arguments = call()
    bound = DraftStepsApart(**arguments)
    for last, lengths in (([5, 6], [6, 7]), ([14, 30], [20, 31])):
        rows = arguments["block_table"].flip(1), torch.tensor(last), torch.tensor(lengths)
        bound.run(*rows)
        want = call(block_table=rows[0], last_positions=rows[1], seq_lens=rows[2])
        apart(**want)
        for name in FIELDS:
            assert all(map(torch.equal, arguments[name], want[name])), name


@pytest.mark.one_variant
def test_opcheck(device):
    opcheck(apart, tuple(call().values()), {})

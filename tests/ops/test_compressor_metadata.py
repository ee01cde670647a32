"""compressor_metadata against its oracle, and the rows that nobody may write."""

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from reference import compressor_metadata as oracle

import dsv4_npu_ops
from dsv4_npu_ops import CompressorMetadata

FIELDS = ("cos", "sin", "slot_mapping", "positions")
FLAT, PAIRS = 1, 2
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
INDEX_DTYPES = [torch.int32, torch.int64]


def make_tables(max_pos, dim, dtype, device):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(max_pos, dim, generator=generator).to(dtype).to(device) for _ in range(2)]


def poisoned(rows, dim, dtype, slot_format, device, wanted=FIELDS):
    out = CompressorMetadata.empty(
        rows, dim, wanted=wanted, slot_mapping_format=slot_format, rope_dtype=dtype, device=device
    )
    for name, tensor in tensors_in(out).items():
        tensor.fill_(float("nan") if name in ("cos", "sin") else 12345)
    return out


def tensors_in(out):
    return {name: tensor for name in FIELDS if (tensor := getattr(out, name)) is not None}


@st.composite
def steps(draw):
    """A ragged step: requests that are read, then some that are not and hold nonsense."""
    ratio = draw(st.sampled_from([1, 2, 3, 4, 128]))
    block_size = draw(st.sampled_from([1, 2, 3, 16, 128]))
    num_reqs = draw(st.integers(0, 5))
    starts = draw(st.lists(st.integers(-3, 5 * ratio + 3), min_size=num_reqs, max_size=num_reqs))
    lengths = draw(st.lists(st.integers(0, 3 * ratio + 1), min_size=num_reqs, max_size=num_reqs))
    columns = draw(st.integers(0, 4))
    blocks = [draw(st.lists(st.integers(-1, 9), min_size=columns, max_size=columns)) for _ in range(num_reqs)]
    cu_seqlens = [draw(st.integers(-2, 3))]
    for length in lengths:
        cu_seqlens.append(cu_seqlens[-1] + length)
    return dict(
        ratio=ratio,
        block_size=block_size,
        num_reqs=num_reqs,
        start_pos=starts,
        cu_seqlens=cu_seqlens,
        block_table=blocks,
        columns=columns,
        max_pos=draw(st.integers(0, 6 * ratio)),
        unread=draw(st.integers(0, 2)),
        table_rows=draw(st.one_of(st.none(), st.permutations(range(num_reqs)))),
    )


def groups_of(step, request):
    start, (begin, end) = step["start_pos"][request], step["cu_seqlens"][request : request + 2]
    return 0 if start < 0 else (start + end - begin) // step["ratio"] - start // step["ratio"]


def tensors_of(step, index_dtypes, device):
    """The step's tensors; rows past num_reqs would break every rule if they were read, and so would the index of a
    request without groups."""
    nonsense = [-(10**9), 10**9][: step["unread"]]
    table = torch.full((step["num_reqs"] + step["unread"], step["columns"] + 2), 10**9, dtype=index_dtypes[2])
    if step["num_reqs"] and step["columns"]:
        table[: step["num_reqs"], : step["columns"]] = torch.tensor(step["block_table"], dtype=index_dtypes[2])
    requests = None
    if step["table_rows"] is not None:
        rows = [row if groups_of(step, i) else -7 for i, row in enumerate(step["table_rows"])]
        requests = torch.tensor(rows + nonsense, dtype=index_dtypes[3], device=device)
    return (
        torch.tensor(step["cu_seqlens"] + nonsense, dtype=index_dtypes[0], device=device),
        torch.tensor(step["start_pos"] + nonsense, dtype=index_dtypes[1], device=device),
        table.to(device)[:, : step["columns"]],
        requests,
    )


@given(
    step=steps(),
    spare=st.integers(0, 3),
    longer=st.integers(0, 2),
    slot_format=st.sampled_from([FLAT, PAIRS]),
    dtype=st.sampled_from(DTYPES),
    index_dtypes=st.tuples(*[st.sampled_from(INDEX_DTYPES)] * 4),
    wanted=st.one_of(st.just(FIELDS), st.lists(st.sampled_from(FIELDS), min_size=1, unique=True)),
    has_tables=st.booleans(),
)
def test_rows_equal_the_oracle(device, step, spare, longer, slot_format, dtype, index_dtypes, wanted, has_tables):
    dim, has_tables = 6, has_tables or "cos" in wanted or "sin" in wanted
    cos, sin = make_tables(step["max_pos"], dim, dtype, device) if has_tables else (None, None)
    cu_seqlens, start_pos, block_table, requests = tensors_of(step, index_dtypes, device)
    num_rows = sum(groups_of(step, request) for request in range(step["num_reqs"])) + spare
    arguments = (cos, sin, cu_seqlens, start_pos, block_table, step["block_size"], slot_format, step["ratio"], num_rows)
    arguments = (*arguments, step["num_reqs"])

    out = poisoned(num_rows + longer, dim, dtype, slot_format, device, wanted)
    got = dsv4_npu_ops.compressor_metadata(*arguments, req_pool_indices=requests)
    assert tuple(tensors_in(got)) == (FIELDS if has_tables else ("slot_mapping", "positions"))
    assert dsv4_npu_ops.compressor_metadata(*arguments, req_pool_indices=requests, out=out) is out
    for result, rows in ((got, num_rows), (out, num_rows + longer)):
        want_cos, want_sin, pairs, positions = oracle.compressor_metadata(
            cos.float().tolist() if has_tables else None,
            sin.float().tolist() if has_tables else None,
            step["cu_seqlens"],
            step["start_pos"],
            step["block_table"],
            step["block_size"],
            step["ratio"],
            rows,
            step["num_reqs"],
            step["table_rows"],
        )
        slots = pairs if slot_format == PAIRS else oracle.flat(pairs, step["block_size"])
        want = dict(
            # An empty table says nothing of the width that dummy rows have.
            cos=torch.tensor([row or [1.0] * dim for row in want_cos]).reshape(rows, 1, 1, dim).to(dtype),
            sin=torch.tensor([row or [0.0] * dim for row in want_sin]).reshape(rows, 1, 1, dim).to(dtype),
            slot_mapping=torch.tensor(slots, dtype=torch.int32).reshape(rows, *[2] * (slot_format == PAIRS)),
            positions=torch.tensor(positions, dtype=torch.int64),
        )
        for name, tensor in tensors_in(result).items():
            assert tensor.dtype == want[name].dtype and torch.equal(tensor.cpu(), want[name]), name


def run(cu_seqlens, start_pos, block_table, *, ratio=4, block_size=16, num_rows=4, slot_format=FLAT, max_pos=4096):
    cos, sin = make_tables(max_pos, 2, torch.float32, "cpu")
    got = dsv4_npu_ops.compressor_metadata(
        cos,
        sin,
        torch.tensor(cu_seqlens, dtype=torch.int32),
        torch.tensor(start_pos, dtype=torch.int32),
        torch.tensor(block_table, dtype=torch.int32),
        block_size,
        slot_format,
        ratio,
        num_rows,
        len(start_pos),
    )
    return got.slot_mapping.tolist()


def test_slots_by_hand():
    # Group 127 is the last of its block, group 128 the first of the next.
    assert run([0, 8], [508], [[10, 11]], block_size=128) == [10 * 128 + 127, 11 * 128, -1, -1]
    assert run([0, 8], [508], [[10, 11]], block_size=128, slot_format=PAIRS, num_rows=3) == [
        [10, 127],
        [11, 0],
        [-1, 127],
    ]
    # Chunks complete groups of the global grid.
    assert run([0, 3, 8], [2, 3], [[5], [6]]) == [80, 96, 97, -1]
    # Block 0 is ordinary, a negative block or start is not.
    assert run([0, 4, 8, 12], [0, 0, -4], [[0], [-1], [7]]) == [0, -1, -1, -1]
    # A dummy in the middle keeps its row, so that the rows after it keep theirs.
    assert run([0, 4, 8], [0, 0], [[-1], [3]]) == [-1, 48, -1, -1]
    # Past the block table, and past the RoPE tables.
    assert run([0, 8], [60], [[3]]) == [63, -1, -1, -1]
    assert run([0, 8], [4], [[3]], max_pos=8) == [49, -1, -1, -1]
    assert run([0, 2], [127], [[2]], ratio=128) == [32, -1, -1, -1]


@pytest.mark.parametrize("slot_format", [FLAT, PAIRS])
@pytest.mark.parametrize("padding_start", [0, -1])
def test_padding_writes_only_the_dummy_slot(slot_format, padding_start):
    """5 blocks of 16: one real row, three padding rows of a captured bucket, each with one token and block table 0."""
    num_blocks, block_size = 5, 16
    slots = run(
        [0, 4, 5, 6, 7],
        [4, padding_start, padding_start, padding_start],
        [[3], [0], [0], [0]],
        block_size=block_size,
        slot_format=slot_format,
    )
    cache = torch.full((num_blocks * block_size,), 99)
    written = []
    for slot in slots:
        where = slot if slot_format == FLAT else slot[0] * block_size + slot[1]
        assert where == 3 * block_size + 1 or where == -1
        if where >= 0:  # writers skip negative slots
            cache[where] = 1
            written.append(where)
    assert written == [49]
    assert torch.nonzero(cache != 99).flatten().tolist() == [49]


def test_an_idle_replay_leaves_dummies_only(device):
    cos, sin = make_tables(64, 4, torch.float32, device)
    out = poisoned(2, 4, torch.float32, FLAT, device)
    cu_seqlens = torch.tensor([0, 4, 8], dtype=torch.int32, device=device)
    start_pos = torch.tensor([4, 8], dtype=torch.int32, device=device)
    blocks = torch.tensor([[1], [2]], dtype=torch.int32, device=device)
    step = (cos, sin, cu_seqlens, start_pos, blocks, 16, FLAT, 4, 2, 2)
    dsv4_npu_ops.compressor_metadata(*step, out=out)
    assert out.slot_mapping.tolist() == [17, 34] and out.positions.tolist() == [4, 8]
    assert torch.equal(out.cos[:, 0, 0].cpu(), cos[[4, 8]].cpu())
    cu_seqlens.zero_()
    dsv4_npu_ops.compressor_metadata(*step, out=out)
    assert out.slot_mapping.tolist() == [-1, -1] and out.positions.tolist() == [0, 0]
    assert (out.cos == 1).all() and (out.sin == 0).all()


def test_slots_and_positions_of_tokens(device):
    """Ratio 1: a verify of 3 tokens from 126 on and a first chunk, through request indices and an int64 table."""
    table = torch.tensor([[9, 9], [5, 6], [7, 8]], device=device)
    got = dsv4_npu_ops.compressor_metadata(
        None,
        None,
        torch.tensor([0, 3, 5], device=device),
        torch.tensor([126, 0], device=device),
        table,
        128,
        FLAT,
        1,
        num_rows=6,
        num_reqs=2,
        req_pool_indices=torch.tensor([2, 1], device=device),
    )
    assert got.cos is got.sin is None
    assert got.slot_mapping.tolist() == [7 * 128 + 126, 7 * 128 + 127, 8 * 128, 5 * 128, 5 * 128 + 1, -1]
    assert got.positions.tolist() == [126, 127, 128, 0, 1, 0]


def good_arguments(rows=2, slot_format=FLAT):
    return dict(
        rope_cos=torch.zeros(64, 4),
        rope_sin=torch.zeros(64, 4),
        cu_seqlens=torch.tensor([0, 4, 8]),
        start_pos=torch.tensor([4, 8]),
        kv_block_table=torch.tensor([[1], [2]], dtype=torch.int32),
        kv_block_size=16,
        slot_mapping_format=slot_format,
        compress_ratio=4,
        num_rows=2,
        num_reqs=2,
        req_pool_indices=None,
        out=poisoned(rows, 4, torch.float32, slot_format, "cpu"),
    )


def replaced(name, tensor, slot_format=FLAT):
    out = poisoned(2, 4, torch.float32, slot_format, "cpu")
    setattr(out, name, tensor)
    return dict(out=out)


ROWS = torch.zeros(2, 1, 1, 4)
BAD_ARGUMENTS = [
    (dict(num_rows=-1), "num_rows is -1, expected at least 0"),
    (dict(num_reqs=-1), "num_reqs is -1, expected at least 0"),
    (dict(compress_ratio=0), "compress_ratio is 0, expected at least 1"),
    (dict(kv_block_size=0), "kv_block_size is 0, expected at least 1"),
    (dict(kv_block_size=2**31), "kv_block_size is 2147483648, expected at most 2147483647"),
    (dict(slot_mapping_format=0), "slot_mapping_format is 0, expected 1 (flat) or 2 (block, offset)"),
    (dict(rope_cos=torch.zeros(64)), "rope_cos has shape [64], expected 2 dimensions"),
    (dict(rope_cos=torch.zeros(64, 4).double()), "rope_cos has dtype Double, expected Float or Half or BFloat16"),
    (dict(rope_cos=torch.zeros(64, 8)[:, ::2]), "rope_cos has strides [8, 2] for shape [64, 4]"),
    (dict(rope_sin=torch.zeros(64, 4).half()), "rope_sin has dtype Half, expected Float"),
    (dict(rope_sin=torch.zeros(63, 4)), "rope_sin has shape [63, 4], expected [64, 4]"),
    (dict(rope_sin=torch.zeros(64, 8)[:, ::2]), "rope_sin has strides [8, 2] for shape [64, 4]"),
    (dict(cu_seqlens=torch.zeros(3, 1).int()), "cu_seqlens has shape [3, 1], expected 1 dimension"),
    (dict(cu_seqlens=torch.zeros(2).int()), "cu_seqlens has 2 entries, expected at least 3 for num_reqs"),
    (dict(cu_seqlens=torch.zeros(3)), "cu_seqlens has dtype Float, expected Int or Long"),
    (dict(cu_seqlens=torch.zeros(6).int()[::2]), "cu_seqlens has strides [2] for shape [3]"),
    (dict(start_pos=torch.zeros(()).int()), "start_pos has shape [], expected 1 dimension"),
    (dict(start_pos=torch.zeros(1).int()), "start_pos has 1 entries, expected at least 2 for num_reqs"),
    (dict(start_pos=torch.zeros(2)), "start_pos has dtype Float, expected Int or Long"),
    (dict(start_pos=torch.zeros(4).int()[::2]), "start_pos has strides [2] for shape [2]"),
    (dict(kv_block_table=torch.zeros(2).int()), "kv_block_table has shape [2], expected 2 dimensions"),
    (dict(kv_block_table=torch.zeros(1, 3).int()), "kv_block_table has 1 rows, expected at least 2 for num_reqs"),
    (dict(kv_block_table=torch.zeros(2, 3)), "kv_block_table has dtype Float, expected Int or Long"),
    (dict(kv_block_table=torch.zeros(2, 6).int()[:, ::2]), "kv_block_table has strides [6, 2], expected elements of"),
    (dict(req_pool_indices=torch.zeros(1).int()), "req_pool_indices has 1 entries, expected at least 2 for num_reqs"),
    (dict(req_pool_indices=torch.zeros(2)), "req_pool_indices has dtype Float, expected Int or Long"),
    (dict(req_pool_indices=torch.zeros(4).int()[::2]), "req_pool_indices has strides [2] for shape [2]"),
    (dict(rope_cos=None), "rope_sin is a tensor, expected None like rope_cos"),
    (dict(rope_sin=None), "rope_sin is None, expected a tensor like rope_cos"),
    (dict(rope_cos=None, rope_sin=None), "out.cos is a tensor, expected None without rope_cos and rope_sin"),
    (dict(num_rows=3), "out.cos has shape [2, 1, 1, 4], expected at least 3 rows (num_rows)"),
    (replaced("cos", torch.zeros(2, 4)), "out.cos has shape [2, 4], expected [2, 1, 1, 4]"),
    (replaced("cos", torch.zeros(2, 1, 1, 5)), "out.cos has shape [2, 1, 1, 5], expected [2, 1, 1, 4]"),
    (replaced("cos", ROWS.half()), "out.cos has dtype Half, expected Float"),
    (replaced("cos", torch.zeros(2, 1, 1, 8)[..., ::2]), "out.cos has strides [8, 8, 8, 2]"),
    (replaced("sin", torch.zeros(3, 1, 1, 4)), "out.sin has shape [3, 1, 1, 4], expected [2, 1, 1, 4]"),
    (replaced("sin", ROWS.half()), "out.sin has dtype Half, expected Float"),
    (replaced("sin", torch.zeros(2, 1, 1, 8)[..., ::2]), "out.sin has strides [8, 8, 8, 2]"),
    (replaced("slot_mapping", torch.zeros(2, dtype=torch.int64)), "out.slot_mapping has dtype Long, expected Int"),
    (replaced("slot_mapping", torch.zeros(2, 2).int()), "out.slot_mapping has shape [2, 2], expected [2]"),
    (replaced("slot_mapping", torch.zeros(4).int()[::2]), "out.slot_mapping has strides [2] for shape [2]"),
    (replaced("positions", torch.zeros(2).int()), "out.positions has dtype Int, expected Long"),
    (replaced("positions", torch.zeros(3).long()), "out.positions has shape [3], expected [2]"),
    (replaced("positions", torch.zeros(4).long()[::2]), "out.positions has strides [2] for shape [2]"),
]

# What a device cannot know before it runs.
BAD_VALUES = [
    (dict(cu_seqlens=torch.tensor([0, 4, 3])), "cu_seqlens[2] is 3, expected at least cu_seqlens[1], which is 4"),
    (
        dict(cu_seqlens=torch.tensor([-(2**63), 2**63 - 1, 2**63 - 1])),
        "cu_seqlens[0] and cu_seqlens[1] are -9223372036854775808 and 9223372036854775807, expected at most 2147483647",
    ),
    (
        dict(cu_seqlens=torch.tensor([0, 4, 2**31 + 4])),
        "cu_seqlens[1] and cu_seqlens[2] are 4 and 2147483652, expected at most 2147483647 tokens between them",
    ),
    (dict(start_pos=torch.tensor([4, 2**31])), "start_pos[1] is 2147483648, expected at most 2147483647"),
    (dict(num_rows=1), "num_rows is 1, expected at least 2 (groups that the step completes)"),
    (
        dict(kv_block_table=torch.tensor([[1], [2**27]], dtype=torch.int32)),
        "kv_block_table[1, 0] is 134217728, expected slots that fit int32 (kv_block_size is 16)",
    ),
    (
        dict(kv_block_table=torch.tensor([[1], [2**62]])),
        "kv_block_table[1, 0] is 4611686018427387904, expected slots that fit int32 (kv_block_size is 16)",
    ),
    (
        dict(slot_mapping_format=PAIRS, kv_block_table=torch.tensor([[2**31], [2]]),
             out=poisoned(2, 4, torch.float32, PAIRS, "cpu")),
        "kv_block_table[0, 0] is 2147483648, expected slots that fit int32 (kv_block_size is 16)",
    ),
    (
        dict(req_pool_indices=torch.tensor([1, 2])),
        "req_pool_indices[1] is 2, expected 0 <= index < 2 (rows of kv_block_table)",
    ),
    (
        dict(req_pool_indices=torch.tensor([-1, 0])),
        "req_pool_indices[0] is -1, expected 0 <= index < 2 (rows of kv_block_table)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    "bad, message", [*BAD_ARGUMENTS, *(pytest.param(*case, marks=pytest.mark.cpu_only) for case in BAD_VALUES)]
)
def test_bad_arguments(bad, message):
    arguments = good_arguments() | bad
    before = {name: tensor.clone() for name, tensor in tensors_in(arguments["out"]).items()}
    with pytest.raises(ValueError) as error:
        dsv4_npu_ops.compressor_metadata(**arguments)
    assert f"compressor_metadata: {message}" in str(error.value)
    for name, tensor in tensors_in(arguments["out"]).items():
        old = before[name]
        assert torch.equal(tensor.isnan(), old.isnan()) and torch.equal(tensor.nan_to_num(), old.nan_to_num())
    del arguments["out"]
    if "out." not in message:
        with pytest.raises(ValueError):
            dsv4_npu_ops.compressor_metadata(**arguments)


def test_bad_sizes_of_buffers():
    with pytest.raises(ValueError, match="empty: num_rows and rope_dim are -1 and 4, expected at least 0"):
        CompressorMetadata.empty(-1, 4)
    with pytest.raises(ValueError, match="empty: wanted names 'slots', expected names among cos, sin, slot_mapping, p"):
        CompressorMetadata.empty(1, 4, wanted=["slots"])


@pytest.mark.device_only
def test_bad_values_bring_no_group_and_an_error_word(ascend_sim):
    # A request between two good ones that cannot be read; groups are of the outer two.
    for bad_cu_seqlens, bad_start, code, value in (
        ([0, 4, 3, 7], 0, 1, 3),
        ([0, 4, 2**31 + 4, 2**31 + 8], 0, 2, -(2**31) + 4),
        ([0, 4, 8, 12], 2**31, 3, -(2**31)),
    ):
        cos, sin = make_tables(64, 4, torch.float32, "cpu")
        starts = torch.tensor([4, bad_start, 8])
        blocks = torch.tensor([[1], [2], [3]], dtype=torch.int32)
        got = dsv4_npu_ops.compressor_metadata(
            cos, sin, torch.tensor(bad_cu_seqlens), starts, blocks, 16, FLAT, 4, num_rows=3, num_reqs=3
        )
        assert got.slot_mapping.tolist() == [17, 50, -1] and got.positions.tolist() == [4, 8, 0]
        assert torch.equal(got.cos[:2, 0, 0], cos[[4, 8]]) and (got.cos[2] == 1).all()
        assert ascend_sim.take_errors() == [[6, code, 1, value, 0, 0, 0, 0]]


@pytest.mark.device_only
@pytest.mark.parametrize("row", [3, -1])
def test_a_request_outside_of_the_block_table_brings_no_group(ascend_sim, row):
    arguments = good_arguments() | dict(req_pool_indices=torch.tensor([row, 0]))
    got = dsv4_npu_ops.compressor_metadata(**arguments)
    assert got.slot_mapping.tolist() == [18, -1] and got.positions.tolist() == [8, 0]
    assert ascend_sim.take_errors() == [[6, 6, 0, row, 0, 0, 0, 0]]


@pytest.mark.device_only
@pytest.mark.parametrize("blocks", [1, 2])
def test_groups_without_a_row_are_reported_once(ascend_sim, blocks):
    ascend_sim.force_blocks(blocks)
    within, beyond = [run([0, 8, 8, 16], [0, 0, 0], [[1], [2], [3]], num_rows=rows) for rows in (3, 2)]
    ascend_sim.force_blocks(0)
    assert within == [16, 17, 48] and beyond == [16, 17]
    errors = ascend_sim.take_errors()
    assert errors[-1] == [6, 4, 2, 4, 0, 0, 0, 0] and len(errors) == 1


@pytest.mark.device_only
def test_slots_beyond_int32_are_reported(ascend_sim):
    assert run([0, 4, 8], [0, 0], [[2**27], [2]], num_rows=2) == [-1, 32]
    assert ascend_sim.take_errors() == [[6, 5, 0, 2**27, 0, 0, 0, 0]]
    assert run([0, 4], [0], [[2**27]], num_rows=1, slot_format=PAIRS) == [[2**27, 0]]
    assert ascend_sim.take_errors() == []


def many_requests(num_reqs, new_tokens, block_size, ratio):
    """Requests at different starts, and what the oracle needs of them."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(0, 2000, (num_reqs,), generator=generator, dtype=torch.int32)
    cu_seqlens = torch.arange(0, (num_reqs + 1) * new_tokens, new_tokens, dtype=torch.int32)
    columns = (2000 + new_tokens) // ratio // block_size + 1
    blocks = torch.randint(-1, 500, (num_reqs, columns), generator=generator, dtype=torch.int32)
    groups = ((starts + new_tokens) // ratio - starts // ratio).sum().item()
    return starts, cu_seqlens, blocks, groups


# With 512 features a core takes 80 rows at a time. Of the requests with one new token most complete no group.
@pytest.mark.parametrize(
    "num_reqs, new_tokens, block_size, dim",
    [(2100, 4, 32, 4), (2300, 1, 32, 4), (3, 900, 1, 4), (40, 100, 12, 4), (40, 30, 3, 512), (40, 8, 16, 0)],
)
def test_many_requests(device, num_reqs, new_tokens, block_size, dim):
    ratio = 4
    starts, cu_seqlens, blocks, groups = many_requests(num_reqs, new_tokens, block_size, ratio)
    cos, sin = make_tables(2000, dim, torch.bfloat16, device)
    rows = groups + 10
    got = dsv4_npu_ops.compressor_metadata(
        cos,
        sin,
        cu_seqlens.to(device),
        starts.to(device),
        blocks.to(device),
        block_size,
        FLAT,
        ratio,
        rows,
        num_reqs,
    )
    want_cos, want_sin, pairs, positions = oracle.compressor_metadata(
        cos.float().tolist(),
        sin.float().tolist(),
        cu_seqlens.tolist(),
        starts.tolist(),
        blocks.tolist(),
        block_size,
        ratio,
        rows,
        num_reqs,
    )
    assert torch.equal(got.cos[:, 0, 0].cpu().float(), torch.tensor(want_cos))
    assert torch.equal(got.sin[:, 0, 0].cpu().float(), torch.tensor(want_sin))
    assert got.slot_mapping.tolist() == list(oracle.flat(pairs, block_size))
    assert got.positions.tolist() == positions


@pytest.mark.simulated_only
@pytest.mark.parametrize("num_reqs, new_tokens", [(64, 4), (1024, 4), (32, 1024)])
def test_simulated_cost(ascend_sim, num_reqs, new_tokens):
    starts, cu_seqlens, blocks, groups = many_requests(num_reqs, new_tokens, 32, 4)
    blocks.clamp_(min=0)
    cos, sin = make_tables(4096, 64, torch.bfloat16, "cpu")
    out = CompressorMetadata.empty(groups, 64, wanted=("cos", "sin", "slot_mapping"), rope_dtype=torch.bfloat16)
    dsv4_npu_ops.compressor_metadata(cos, sin, cu_seqlens, starts, blocks, 32, FLAT, 4, groups, num_reqs, out=out)
    got = list(tensors_in(out).values())
    (counters,) = ascend_sim.take_counters()
    output_bytes = sum(tensor.nbytes for tensor in got)
    own_copies = counters["blocks"] * (cu_seqlens.nbytes + starts.nbytes)
    block_entries = 4 * (groups // 32 + 2 * num_reqs + counters["blocks"])
    assert counters["mte3_bytes"] == output_bytes
    assert counters["mte2_bytes"] - own_copies <= 1.25 * (2 * cos[0].nbytes * groups + block_entries)
    elements = sum(tensor.numel() for tensor in got)
    scalars = counters["ub_scalar_reads"] + counters["ub_scalar_writes"]
    assert scalars <= 0.1 * elements + 4 * num_reqs * counters["blocks"]
    assert counters["gm_scalar_reads"] == counters["gm_scalar_writes"] == 0


def test_a_flat_mapping_does_not_fit_pairs():
    arguments = good_arguments() | dict(slot_mapping_format=PAIRS)
    with pytest.raises(ValueError, match=r"out.slot_mapping has shape \[2\], expected \[2, 2\]"):
        dsv4_npu_ops.compressor_metadata(**arguments)


def op_arguments(slot_format=FLAT):
    """Keyword arguments of the op itself."""
    arguments = good_arguments(slot_format=slot_format)
    return arguments | tensors_in(arguments.pop("out"))


@pytest.mark.parametrize("name", ["rope_cos", "rope_sin", "start_pos", "kv_block_table"])
def test_another_device(name):
    arguments = op_arguments()
    arguments[name] = arguments[name].to("meta")
    with pytest.raises(ValueError, match=rf"compressor_metadata: {name} is on meta, expected \S+ like cu_seqlens"):
        torch.ops.dsv4_npu_ops.compressor_metadata.default.redispatch(
            torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), **arguments
        )


@pytest.mark.one_variant
@pytest.mark.parametrize("slot_format", [FLAT, PAIRS])
def test_opcheck(device, slot_format):
    opcheck(torch.ops.dsv4_npu_ops.compressor_metadata.default, (), op_arguments(slot_format))

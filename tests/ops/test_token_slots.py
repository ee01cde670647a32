"""token_slots against its oracle, and by hand."""

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from reference import token_slots as oracle

import dsv4_npu_ops
from dsv4_npu_ops import BatchPageTable

INDEX_DTYPES = [torch.int32, torch.int64]
NONSENSE = [-(10**9), 10**9]


@st.composite
def steps(draw):
    """A ragged step over some tables: requests that are read, then some that are not and hold nonsense."""
    num_reqs = draw(st.integers(0, 5))
    gap = draw(st.integers(0, 3))
    lengths = draw(st.lists(st.integers(0, 40), min_size=num_reqs, max_size=num_reqs))
    cu_seqlens = [gap]
    for length in lengths:
        cu_seqlens.append(cu_seqlens[-1] + length)
    # A length of 0 is padding.
    starts = draw(st.lists(st.integers(-1, 300), min_size=num_reqs, max_size=num_reqs))
    seq_lens = [0 if start < 0 else start + length for start, length in zip(starts, lengths, strict=True)]
    return dict(
        num_reqs=num_reqs,
        cu_seqlens=cu_seqlens,
        seq_lens=seq_lens,
        num_tokens=cu_seqlens[-1] + draw(st.integers(0, 3)),
        unread=draw(st.integers(0, 2)),
        tables=[draw(tables(num_reqs)) for _ in range(draw(st.integers(1, 3)))],
    )


@st.composite
def tables(draw, num_reqs):
    columns = draw(st.integers(0, 6))
    pages = st.lists(st.integers(-2, 9), min_size=columns, max_size=columns)
    first_pages = st.lists(st.integers(-2, 20), min_size=num_reqs, max_size=num_reqs)
    return dict(
        page_size=draw(st.sampled_from([1, 2, 16, 128])),
        ratio=draw(st.sampled_from([1, 4, 128])),
        columns=columns,
        table=draw(st.lists(pages, min_size=num_reqs, max_size=num_reqs)),
        first_pages=draw(st.one_of(st.none(), first_pages)),
        lowest_page=draw(st.sampled_from([0, 1, 3])),
    )


def batch_page_table(table, num_reqs, unread, dtypes, device):
    """Rows at a stride, and beyond the requests what would break every rule if it were read."""
    pages = torch.full((num_reqs + unread, table["columns"] + 2), 2**31 - 1, dtype=dtypes[0])
    if num_reqs and table["columns"]:
        pages[:num_reqs, : table["columns"]] = torch.tensor(table["table"], dtype=dtypes[0])
    first_pages = table["first_pages"]
    if first_pages is not None:
        first_pages = torch.tensor(first_pages + NONSENSE[:unread], dtype=dtypes[1]).to(device)
    return BatchPageTable(
        pages.to(device)[:, : table["columns"]], table["page_size"], table["ratio"], first_pages, table["lowest_page"]
    )


@given(step=steps(), longer=st.integers(0, 2), dtypes=st.tuples(*[st.sampled_from(INDEX_DTYPES)] * 4))
def test_slots_equal_the_oracle(device, step, longer, dtypes):
    unread = step["unread"]
    cu_seqlens = torch.tensor(step["cu_seqlens"] + NONSENSE[:unread], dtype=dtypes[0]).to(device)
    seq_lens = torch.tensor(step["seq_lens"] + NONSENSE[:unread], dtype=dtypes[1]).to(device)
    made = [batch_page_table(t, step["num_reqs"], unread, dtypes[2:], device) for t in step["tables"]]
    num_tokens, num_reqs = step["num_tokens"], step["num_reqs"]
    got = dsv4_npu_ops.token_slots(cu_seqlens, seq_lens, made, num_tokens, num_reqs)
    buffers = [torch.full((num_tokens + longer,), 12345, device=device) for _ in made]
    out = dsv4_npu_ops.token_slots(cu_seqlens, seq_lens, made, num_tokens, num_reqs, out=buffers)
    assert all(given is buffer for given, buffer in zip(out, buffers, strict=True))
    for result, tokens in ((got, num_tokens), (out, num_tokens + longer)):
        for slots, table in zip(result, step["tables"], strict=True):
            described = [table[name] for name in ("table", "page_size", "ratio", "first_pages", "lowest_page")]
            want = oracle.token_slots(step["cu_seqlens"], step["seq_lens"], *described, tokens, num_reqs)
            assert slots.dtype == torch.int64 and slots.tolist() == want


def run(cu_seqlens, seq_lens, tables, num_tokens, device="cpu"):
    slots = dsv4_npu_ops.token_slots(
        torch.tensor(cu_seqlens, dtype=torch.int32, device=device),
        torch.tensor(seq_lens, dtype=torch.int32, device=device),
        tables,
        num_tokens,
        len(seq_lens),
    )
    return [tensor.tolist() for tensor in slots]


def pages(rows, page_size, ratio=1, first_pages=None, dtype=torch.int32):
    first_pages = None if first_pages is None else torch.tensor(first_pages, dtype=dtype)
    return BatchPageTable(torch.tensor(rows, dtype=dtype), page_size, ratio, first_pages)


def test_slots_by_hand(device):
    # Tokens 5, 6, 7 of one request and 4, 5 of another: only 7 ends a group of 4, the second.
    table = pages([[10, 11, 12], [20, 21, 22]], 4, 4)
    assert run([0, 3, 5], [8, 6], [table], 6, device) == [[-1, -1, 10 * 4 + 1, -1, -1, -1]]
    # Tokens 254 to 257 in pages of 128 of which the first is gone, and the same groups of 4 in pages of 64.
    window, groups = pages([[7, 8]], 128, first_pages=[1]), pages([[3, 4]], 64, 4)
    assert run([0, 4], [258], [window, groups], 4, device) == [
        [7 * 128 + 126, 7 * 128 + 127, 8 * 128, 8 * 128 + 1],
        [-1, 3 * 64 + 63, -1, -1],
    ]
    # Page 0 is ordinary, a negative one is none; so is one in front of the row or behind it.
    assert run([0, 4], [4], [pages([[0, -1]], 2), pages([[5]], 2, first_pages=[1])], 4, device) == [
        [0, 1, -1, -1],
        [-1, -1, 10, 11],
    ]
    assert run([0, 4], [4], [pages([[5]], 2)], 4, device) == [[10, 11, -1, -1]]
    reserved = BatchPageTable(torch.tensor([[0, 3]]), 2, lowest_page=1)
    assert run([0, 4], [4], [reserved], 4, device) == [[-1, -1, 6, 7]]
    # Padding keeps its entries.
    assert run([1, 3, 5], [0, 2], [pages([[5], [6]], 2)], 6, device) == [[-1, -1, -1, 12, 13, -1]]
    assert run([0], [], [pages([[0]], 2)], 2, device) == [[-1, -1]]
    assert run([0, 4], [4], [], 4, device) == []


def test_first_pages_of_any_size(device):
    rows, ends = [[5, 6]] * 4, [0, 1, 2, 3, 4]
    first_pages = [2**62, -(2**63), 2**63 - 1, 1]
    table = pages(rows, 4, first_pages=first_pages, dtype=torch.int64)
    assert run(ends, [7] * 4, [table], 4, device) == [[-1, -1, -1, 5 * 4 + 2]]


# Requests over several chunks and tiles; long runs within pages, and many requests in a tile.
@pytest.mark.parametrize("num_reqs, new_tokens", [(2100, 4), (2300, 1), (3, 900), (1, 5000), (40, 100)])
def test_many_requests(device, num_reqs, new_tokens):
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(0, 2000, (num_reqs,), generator=generator)
    tokens = torch.randint(0, 2 * new_tokens + 1, (num_reqs,), generator=generator)
    seq_lens = (starts + tokens).int()
    cu_seqlens = torch.cat([torch.zeros(1, dtype=torch.int64), tokens.cumsum(0)])
    num_tokens = int(cu_seqlens[-1]) + 3
    described = []
    for page_size, ratio, shortened in ((128, 1, True), (8, 1, False), (64, 4, False), (2, 128, True), (4, 4, True)):
        columns = 12 if shortened else 12100 // ratio // page_size + 1
        first_pages = (starts // ratio // page_size - 1).int() if shortened else None
        table = torch.randint(-1, 500, (num_reqs, columns), generator=generator).int()
        described.append((table, page_size, ratio, first_pages))
    got = dsv4_npu_ops.token_slots(
        cu_seqlens.to(device),
        seq_lens.to(device),
        [BatchPageTable(*[x.to(device) if isinstance(x, torch.Tensor) else x for x in table]) for table in described],
        num_tokens,
        num_reqs,
    )
    for slots, (table, page_size, ratio, first_pages) in zip(got, described, strict=True):
        bases = None if first_pages is None else first_pages.tolist()
        rows = (cu_seqlens.tolist(), seq_lens.tolist(), table.tolist())
        assert slots.tolist() == oracle.token_slots(*rows, page_size, ratio, bases, 0, num_tokens, num_reqs)


def test_an_idle_replay_leaves_dummies_only(device):
    cu_seqlens = torch.tensor([0, 4], device=device)
    seq_lens = torch.tensor([4], device=device)
    out = [torch.full((4,), 77, device=device)]
    table = BatchPageTable(torch.tensor([[3]], device=device), 16)
    dsv4_npu_ops.token_slots(cu_seqlens, seq_lens, [table], 4, 1, out=out)
    assert out[0].tolist() == [48, 49, 50, 51]
    seq_lens.zero_()
    dsv4_npu_ops.token_slots(cu_seqlens, seq_lens, [table], 4, 1, out=out)
    assert out[0].tolist() == [-1] * 4


def good_arguments():
    table = BatchPageTable(torch.tensor([[1, 2], [3, 4]]), 16, 4, torch.tensor([0, 0]))
    return dict(
        cu_seqlens=torch.tensor([0, 4, 8]),
        seq_lens=torch.tensor([4, 8]),
        tables=[BatchPageTable(torch.tensor([[1], [2]]), 16), table],
        num_tokens=8,
        num_reqs=2,
        out=[torch.full((8,), 77) for _ in range(2)],
    )


def with_table(**changed):
    table = dict(table=torch.tensor([[1, 2], [3, 4]]), page_size=16, ratio=4, first_pages=torch.tensor([0, 0]))
    return dict(tables=[BatchPageTable(torch.tensor([[1], [2]]), 16), BatchPageTable(**(table | changed))])


BAD_ARGUMENTS = [
    (dict(num_tokens=-1), "num_tokens is -1, expected at least 0"),
    (dict(num_reqs=-1), "num_reqs is -1, expected at least 0"),
    (dict(num_reqs=3), "cu_seqlens has 3 entries, expected at least 4 for num_reqs"),
    (dict(seq_lens=torch.tensor([4])), "seq_lens has 1 entries, expected at least 2 for num_reqs"),
    (dict(seq_lens=torch.tensor([4.0, 8.0])), "seq_lens has dtype Float, expected Int or Long"),
    (dict(cu_seqlens=torch.tensor([[0, 4, 8]])), "cu_seqlens has shape [1, 3], expected 1 dimension"),
    (dict(cu_seqlens=torch.arange(6)[::2]), "cu_seqlens has strides [2] for shape [3], expected a contiguous tensor"),
    (dict(tables=[BatchPageTable(torch.tensor([[1], [2]]), 1)] * 9), "tables has 9 tables, expected at most 8"),
    (dict(tables=[]), "out has 2 entries, expected 0 like tables"),
    (with_table(table=torch.tensor([1])), "tables[1] has shape [1], expected 2 dimensions"),
    (with_table(table=torch.tensor([[1]])), "tables[1] has 1 rows, expected at least 2 for num_reqs"),
    (with_table(table=torch.tensor([[1.0], [2.0]])), "tables[1] has dtype Float, expected Int or Long"),
    (
        with_table(table=torch.ones(2, 4, dtype=torch.int32)[:, ::2]),
        "tables[1] has strides [4, 2], expected elements of a row next to each other (last stride 1)",
    ),
    (with_table(page_size=12), "page_size of tables[1] is 12, expected a power of two below 2**31"),
    (with_table(lowest_page=-1), "lowest_page of tables[1] is -1, expected 0 to 2147483647"),
    (with_table(ratio=0), "ratio of tables[1] is 0, expected a power of two below 2**31"),
    (
        with_table(first_pages=torch.tensor([0])),
        "first_pages of tables[1] has 1 entries, expected at least 2 for num_reqs",
    ),
    (dict(out=[torch.full((7,), 77) for _ in range(2)]), "out[0] has 7 entries, expected 8 (num_tokens)"),
    (dict(out=[torch.full((8,), 77), torch.full((9,), 77)]), "out[1] has shape [9], expected [8]"),
    (dict(out=[torch.full((8, 1), 77)] * 2), "out[0] has shape [8, 1], expected 1 dimension"),
    (dict(out=[torch.full((8,), 77, dtype=torch.int32)] * 2), "out[0] has dtype Int, expected Long"),
]
BAD_VALUES = [
    (
        dict(cu_seqlens=torch.tensor([0, 4, 3])),
        "cu_seqlens[1] and cu_seqlens[2] are 4 and 3, expected 0 or more and not decreasing",
    ),
    (
        dict(cu_seqlens=torch.tensor([-1, 3, 8])),
        "cu_seqlens[0] and cu_seqlens[1] are -1 and 3, expected 0 or more and not decreasing",
    ),
    (dict(cu_seqlens=torch.tensor([0, 4, 9])), "cu_seqlens[2] is 9, expected at most 8 (entries of slots)"),
    (
        dict(seq_lens=torch.tensor([4, 3])),
        "seq_lens[1] is 3, expected 0 for padding or at least 4 (its new tokens)",
    ),
    (dict(seq_lens=torch.tensor([-1, 8])), "seq_lens[0] is -1, expected 0 for padding or at least 4 (its new tokens)"),
    (dict(seq_lens=torch.tensor([4, 2**31])), "seq_lens[1] is 2147483648, expected at most 2147483647"),
    (
        with_table(table=torch.tensor([[1, 2], [2**27, 4]])),
        "tables[1][1, 0] is 134217728, expected slots that fit int32 (page_size of tables[1] is 16)",
    ),
]


@pytest.mark.parametrize(
    "bad, message", [*BAD_ARGUMENTS, *(pytest.param(*case, marks=pytest.mark.cpu_only) for case in BAD_VALUES)]
)
def test_bad_arguments(bad, message):
    arguments = good_arguments() | bad
    before = [tensor.clone() for tensor in arguments["out"]]
    with pytest.raises(ValueError) as error:
        dsv4_npu_ops.token_slots(**arguments)
    assert f"token_slots: {message}" in str(error.value)
    assert all(torch.equal(*pair) for pair in zip(arguments["out"], before, strict=True))


@pytest.mark.cpu_only
def test_the_largest_slot_is_int32s():
    table = pages([[2**27 - 1]], 16)
    assert run([0, 1], [16], [table], 1) == [[2**31 - 1]]


@pytest.mark.device_only
@pytest.mark.parametrize("blocks", [1, 2])
def test_bad_values_bring_no_slots_and_an_error_word(ascend_sim, blocks):
    ascend_sim.force_blocks(blocks)
    table = pages([[1], [2], [3]], 16)
    for ends, seq_lens, code, value, slots in (
        ([0, 2, 1, 3], [2, 2, 2], 1, 1, [16, 17, 49, -1]),
        ([0, 2, 5, 5], [2, 2, 2], 2, 5, [16, 17, -1, -1]),
        ([0, 1, 3, 4], [1, 1, 1], 3, 1, [16, -1, -1, 48]),
        ([0, 1, 3, 4], [1, 2**31, 1], 4, -(2**31), [16, -1, -1, 48]),
    ):
        got = dsv4_npu_ops.token_slots(torch.tensor(ends), torch.tensor(seq_lens), [table], 4, 3)
        assert got[0].tolist() == slots
        assert {tuple(error) for error in ascend_sim.take_errors()} == {(15, code, 1, value, 0, 0, 0, 0)}
    got = dsv4_npu_ops.token_slots(torch.tensor([0, 1, 2]), torch.tensor([1, 1]), [pages([[2**27], [5]], 16)], 2, 2)
    assert got[0].tolist() == [-1, 80]
    assert ascend_sim.take_errors() == [[15, 5, 0, 2**27, 0, 0, 0, 0]]
    ascend_sim.force_blocks(0)


@pytest.mark.device_only
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_bad_request_between_tiles_is_reported(ascend_sim, blocks):
    """Offsets that go back, where the search for a tile's first request may land behind them."""
    ascend_sim.force_blocks(blocks)
    ends = [0, 1000, 2000, 900, 1500, 3000]
    table = pages([[1]] * 5, 4096)
    dsv4_npu_ops.token_slots(torch.tensor(ends), torch.tensor([1500] * 5), [table], 3000, 5)
    assert {tuple(error) for error in ascend_sim.take_errors()} == {(15, 1, 2, 900, 0, 0, 0, 0)}
    ascend_sim.force_blocks(0)


@pytest.mark.simulated_only
@pytest.mark.parametrize("num_reqs, new_tokens", [(64, 4), (1024, 4), (8, 4096)])
def test_simulated_cost(ascend_sim, num_reqs, new_tokens):
    """Scalars are few where runs are long, and nothing is read or written twice."""
    ends = torch.arange(num_reqs + 1, dtype=torch.int32) * new_tokens
    seq_lens = torch.full((num_reqs,), 8192, dtype=torch.int32)
    table = BatchPageTable(torch.ones(num_reqs, 64, dtype=torch.int32), 128)
    (slots,) = dsv4_npu_ops.token_slots(ends, seq_lens, [table], int(ends[-1]), num_reqs)
    (counters,) = ascend_sim.take_counters()
    tiles = counters["mte3_calls"]
    assert counters["mte3_bytes"] == slots.nbytes
    assert counters["mte2_bytes"] <= 4 * (num_reqs * (new_tokens // 128 + 2) + tiles) + tiles * (8 * num_reqs + 8)
    assert counters["gm_scalar_reads"] == counters["gm_scalar_writes"] == 0
    scalars = counters["ub_scalar_reads"] + counters["ub_scalar_writes"]
    assert scalars <= (1.2 if new_tokens < 128 else 0.25) * slots.numel() + tiles * 16 + 16 * num_reqs


@pytest.mark.one_variant
def test_opcheck(device):
    arguments = good_arguments()
    tables = arguments["tables"]
    opcheck(
        torch.ops.dsv4_npu_ops.token_slots.default,
        (arguments["cu_seqlens"], arguments["seq_lens"], [table.table for table in tables], [tables[1].first_pages]),
        dict(
            first_pages_of=[-1, 0],
            page_sizes=[16, 16],
            ratios=[1, 4],
            lowest_pages=[0, 0],
            num_reqs=2,
            slots=arguments["out"],
        ),
    )


@pytest.mark.cpu_only
def test_other_tables_are_named():
    offsets, lengths = torch.tensor([0, 1]), torch.tensor([1])
    for wrong, kind in ((torch.zeros(1, 4, dtype=torch.int32), "Tensor"), (object(), "object")):
        with pytest.raises(ValueError, match=rf"^token_slots: tables\[0\] is a {kind}, expected a BatchPageTable"):
            dsv4_npu_ops.token_slots(offsets, lengths, [wrong], 1, 1)

"""Table writes against their oracle."""

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from reference import write_req_tables as oracle

import dsv4_npu_ops
from dsv4_npu_ops import KVLayout, OutCacheLoc, RequestTables
from dsv4_npu_ops.layout import DividedSlots, MappedSlots, PageRing, PageTable, RequestRing, SlotTable

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
TOKENS_PER_UNIT = {"c4": 4, "c128": 128}
POISON = 7777
SLOTS = {pool: ("slots", torch.int32, None) for pool in POOLS}
"""Kinds of tables by pool: slots, or pages of some size, and the dtype; columns of a page table that is a ring."""


def poisoned_tables(device, kinds=SLOTS, max_requests=4, max_context_len=300):
    """Tables whose every entry would show an accidental write; wider rows than the table, so that rows are strided."""
    pools = {}
    for pool, (kind, dtype, ring) in kinds.items():
        units = max(1, max_context_len // TOKENS_PER_UNIT.get(pool, 1))
        columns = ring or (units if kind == "slots" else -(-units // kind))
        table = torch.full((max_requests, columns + 3), POISON, dtype=dtype).to(device)[:, :columns]
        pools[pool] = SlotTable(table, 16) if kind == "slots" else PageTable(table, kind)
    return RequestTables.of(pools, max_context_len=max_context_len)


def lists(tables):
    """The tables by pool, None for those that do not exist."""
    return [None if table is None else table.tolist() for table in tables.op_tables]


def sizes(kinds):
    return [None if kinds.get(pool, ("slots",))[0] == "slots" else kinds[pool][0] for pool in POOLS]


def as_loc(locs, device):
    return OutCacheLoc(*(torch.tensor(loc, dtype=torch.int32, device=device) for loc in locs))


@st.composite
def table_kinds(draw):
    """Some pools, each with a table of slots or of pages."""
    kinds = {}
    for pool in draw(st.sets(st.sampled_from(POOLS), min_size=1)):
        kind = draw(st.sampled_from(["slots", 1, 4, 16, 128]))
        kinds[pool] = (kind, draw(st.sampled_from([torch.int32, torch.int64])), None)
    return kinds


@st.composite
def writes(draw, kinds):
    """(requests, starts, ends, state starts or None). Several rows name one request unless they may meet in a page."""
    most_cuts = 4 if all(kind == "slots" for kind, *_ in kinds.values()) else 2
    rows = []
    for request in draw(st.permutations(range(4))):
        cuts = sorted(draw(st.lists(st.integers(0, 300), max_size=most_cuts)))
        rows += [(request, start, end) for start, end in zip(cuts[::2], cuts[1::2], strict=False)]
    rows += [(draw(st.sampled_from([-5, 99, 0])), position, position) for position in draw(st.lists(st.integers(0, 9)))]
    rows = draw(st.permutations(rows))
    requests, starts, ends = ([row[i] for row in rows] for i in range(3))
    state_starts = None
    if draw(st.booleans()):
        # Only from `start` on, so that the rows of one request stay apart.
        state_starts = [[draw(st.integers(s, e)) for s, e in zip(starts, ends, strict=True)] for _ in range(2)]
    return requests, starts, ends, state_starts


@given(
    kinds=table_kinds(),
    data=st.data(),
    dtypes=st.tuples(*[st.sampled_from([torch.int32, torch.int64])] * 4),
    tail=st.integers(0, 3),
    source=st.randoms(use_true_random=False),
)
def test_tables_equal_the_oracle(device, kinds, data, dtypes, tail, source):
    requests, starts, ends, state_starts = data.draw(writes(kinds))
    tables = poisoned_tables(device, kinds)
    most = sum(ends) + tail
    locs = [[source.randint(-1, 9999) for _ in range(most)]] * 6
    want = lists(tables)
    oracle.write_req_tables(want, sizes(kinds), requests, starts, ends, locs, state_starts)

    def as_rows(values, dtype):
        return torch.tensor(values, dtype=dtype, device=device)

    dsv4_npu_ops.write_req_tables(
        tables,
        as_rows(requests, dtypes[0]),
        as_rows(starts, dtypes[1]),
        as_rows(ends, dtypes[2]),
        as_loc(locs, device),
        state_starts=None if state_starts is None else tuple(as_rows(values, dtypes[3]) for values in state_starts),
    )
    assert lists(tables) == want


@pytest.mark.parametrize("size", [1, 16])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rings_of_columns(device, size, dtype):
    """Intervals around the end of a ring, as long as it allows."""
    kinds = {"full": (size, dtype, None), "swa": (size, dtype, 5), "c128_state": (size, dtype, 3)}
    tables = poisoned_tables(device, kinds, max_context_len=40 * size)
    requests, starts, ends = [1, 3, 0], [7 * size, 0, 3 * size], [10 * size, 3 * size, 4 * size]
    locs = [[size * i + 5 for i in range(1, 7 * size + 1)]] * 6
    want = lists(tables)
    oracle.write_req_tables(want, sizes(kinds), requests, starts, ends, locs, None)
    rows = (torch.tensor(values, device=device) for values in (requests, starts, ends))
    dsv4_npu_ops.write_req_tables(tables, *rows, as_loc(locs, device))
    assert lists(tables) == want


@pytest.mark.parametrize("size", [1, 8, 4096])
def test_more_pages_than_a_tile(device, size):
    """And pages of more slots than a tile, of which each block has a part."""
    tokens = 1200 * size if size < 4096 else 3 * size - 7
    kinds = {"full": (size, torch.int64, None), "c4_state": (size, torch.int32, None)}
    tables = poisoned_tables(device, kinds, max_context_len=tokens)
    locs = [list(range(3, 3 + 2 * tokens))] * 6
    requests, starts, ends = [2, 1], [0, 3], [tokens, tokens - 1]
    want = lists(tables)
    oracle.write_req_tables(want, sizes(kinds), requests, starts, ends, locs, None)
    rows = (torch.tensor(values, device=device) for values in (requests, starts, ends))
    dsv4_npu_ops.write_req_tables(tables, *rows, as_loc(locs, device))
    assert lists(tables) == want


def test_pools_with_a_rule_have_nothing_to_write(device):
    """Their slots may be given or not; the table that a rule starts from is written once."""
    table = torch.zeros(2, 64, dtype=torch.int32, device=device)
    mapping = torch.full((1000,), POISON, dtype=torch.int64, device=device)
    rules = {
        "full": SlotTable(table, 16),
        "swa": MappedSlots(mapping, 16),
        "c4": DividedSlots(),
        "c4_state": PageRing(8),
        "c128_state": RequestRing(128),
    }
    tables = RequestTables.of(rules, max_context_len=64)
    rows = tuple(torch.tensor([value], device=device) for value in (1, 0, 8))
    dsv4_npu_ops.write_req_tables(tables, *rows, as_loc([list(range(20, 28)), [], [9, 9], [], [1] * 8, []], device))
    want = [[0] * 64, list(range(20, 28)) + [0] * 56]
    assert table.tolist() == want and bool((mapping == POISON).all())


def test_tables_with_different_numbers_of_rows(device):
    kinds = {"full": SLOTS["full"], "swa": SLOTS["swa"]}
    tables = poisoned_tables(device, kinds)
    short = poisoned_tables(device, kinds, max_requests=2)
    both = RequestTables.of({"full": tables.pools["full"], "swa": short.pools["swa"]}, max_context_len=300)
    rows = tuple(torch.tensor([value], device=device) for value in (1, 0, 4))
    dsv4_npu_ops.write_req_tables(both, *rows, as_loc([[1, 2, 3, 4]] * 6, device))
    assert both.table("swa")[1, :5].tolist() == [1, 2, 3, 4, POISON]


def test_padding_rows_write_nothing(device):
    """Case 23: five blocks of 16, one real row, three padded ones that name the same request."""
    tables = poisoned_tables(device, max_requests=5, max_context_len=16)
    before = lists(tables)
    requests = torch.tensor([2, 2, 0, 99], device=device)
    starts = torch.tensor([4, 0, 7, 3], device=device)
    ends = torch.tensor([8, 0, 7, 3], device=device)
    loc = as_loc([[20, 21, 22, 23]] * 2 + [[17], []] + [[36, 37, 38, 39]] * 2, device)
    dsv4_npu_ops.write_req_tables(tables, requests, starts, ends, loc)
    for pool, slots in ((0, [20, 21, 22, 23]), (1, [20, 21, 22, 23]), (4, [36, 37, 38, 39]), (5, [36, 37, 38, 39])):
        before[pool][2][4:8] = slots
    before[2][2][1] = 17
    assert lists(tables) == before


@pytest.mark.parametrize("form", ["shared", "pair", "matrix"])
def test_forms_of_state_starts(device, form):
    tables = poisoned_tables(device)
    requests, starts, ends = (torch.tensor([value], device=device) for value in (1, 2, 6))
    c4_start, c128_start = (4, 4) if form == "shared" else (0, 5)
    state_starts = {
        "shared": torch.tensor([4], device=device),
        "pair": (torch.tensor([0], device=device), torch.tensor([5], device=device)),
        "matrix": torch.tensor([[0], [5]], device=device),
    }[form]
    slots = list(range(100, 106))
    loc = as_loc([slots] * 6, device)
    dsv4_npu_ops.write_req_tables(tables, requests, starts, ends, loc, state_starts=state_starts)
    assert tables.table("full")[1, 2:6].tolist() == slots[:4]
    assert tables.table("c4_state")[1, c4_start:6].tolist() == slots[: 6 - c4_start]
    assert tables.table("c128_state")[1, c128_start:6].tolist() == slots[: 6 - c128_start]
    assert tables.table("c4_state")[1, 6] == POISON


def test_what_an_allocator_returns_can_be_written_elsewhere(device):
    layout = KVLayout(page_size=16, max_requests=3, max_context_len=300, num_pages=dict.fromkeys(POOLS, 60))
    tables, copies = RequestTables(layout), RequestTables(layout)
    alloc = dsv4_npu_ops.KVAllocator(layout, tables)
    alloc.alloc_extend([0, 2], [0, 0], [130, 7])
    requests, starts, ends = torch.tensor([2, 0]), torch.tensor([7, 130]), torch.tensor([30, 260])
    loc = alloc.reserve_extend(requests, starts, ends)
    dsv4_npu_ops.write_req_tables(copies, requests, starts, ends, loc)
    for pool, table in zip(POOLS, copies.op_tables, strict=True):
        for request, start, end in ((2, 7, 30), (0, 130, 260)):
            u = TOKENS_PER_UNIT.get(pool, 1)
            pages = slice(start // u // 16, -(-(end // u) // 16))
            assert torch.equal(table[request, pages], tables.table(pool)[request, pages])
            assert not table[request, : pages.start].any() and not table[request, pages.stop :].any()


def arguments(**bad):
    """A good call of one row [0, 4) of request 1, with what is bad put in its place."""
    slots = [list(range(16, 20))] * 2 + [[16], []] + [list(range(16, 20))] * 2
    good = dict(req_pool_indices=torch.tensor([1]), starts=torch.tensor([0]), ends=torch.tensor([4]))
    loc = as_loc(slots, "cpu")
    for name in [name for name in bad if name.startswith("out_")]:
        setattr(loc, name, bad.pop(name))
    return dict(good, loc=loc) | bad


BAD_ARGUMENTS = [
    (dict(req_pool_indices=torch.tensor([1.0])), "req_pool_indices has dtype Float, expected Int or Long"),
    (dict(req_pool_indices=torch.tensor([[1]])), "req_pool_indices has shape [1, 1], expected 1 dimension"),
    (dict(starts=torch.tensor([0, 1])), "starts has shape [2], expected [1]"),
    (dict(ends=torch.tensor([0.0])), "ends has dtype Float, expected Int or Long"),
    (dict(out_swa_loc=torch.zeros(4, dtype=torch.int64)), "loc.out_swa_loc has dtype Long, expected Int"),
    (dict(out_swa_loc=torch.zeros(8, dtype=torch.int32)[::2]), "loc.out_swa_loc has strides [2]"),
    (dict(out_swa_loc=torch.zeros(4, 1, dtype=torch.int32)), "loc.out_swa_loc has shape [4, 1], expected 1 dimension"),
    (dict(state_starts=torch.tensor([0, 1])), "state_starts[0] has shape [2], expected [1]"),
    (dict(state_starts=torch.zeros(3, 1)), "state_starts has 3 rows, expected one vector or two"),
]

# What stands in tensors: a device does not raise, see the tests of the error words.
BAD_VALUES = [
    (dict(req_pool_indices=torch.tensor([4])), "req_pool_indices[0] is 4, expected 0 <= index < 4"),
    (dict(req_pool_indices=torch.tensor([-1])), "req_pool_indices[0] is -1, expected 0 <= index < 4"),
    (dict(starts=torch.tensor([-1])), "starts[0] is -1, expected at least 0"),
    (dict(starts=torch.tensor([5])), "ends[0] is 4, expected no less than the starts, but starts[0] is 5"),
    (dict(ends=torch.tensor([301])), "ends[0] is 301, expected units within the columns of every table"),
    (dict(ends=torch.tensor([5])), "loc.out_full_loc has 4 entries, expected at least 5"),
    (dict(out_c4_loc=torch.zeros(0, dtype=torch.int32)), "loc.out_c4_loc has 0 entries, expected at least 1"),
    (dict(state_starts=torch.tensor([-1])), "starts[0] is 0 (state pools: -1 and -1), expected at least 0"),
    (dict(state_starts=torch.tensor([5])), "ends[0] is 4, expected no less than the starts"),
]


@pytest.mark.parametrize(
    "bad, message", [*BAD_ARGUMENTS, *(pytest.param(*case, marks=pytest.mark.cpu_only) for case in BAD_VALUES)]
)
def test_bad_arguments_write_nothing(bad, message):
    tables = poisoned_tables("cpu")
    before = lists(tables)
    with pytest.raises(ValueError) as error:
        dsv4_npu_ops.write_req_tables(tables, **arguments(**dict(bad)))
    assert f"write_req_tables: {message}" in str(error.value)
    assert lists(tables) == before


@pytest.mark.cpu_only
def test_a_bad_row_behind_good_ones_writes_nothing():
    tables = poisoned_tables("cpu")
    before = lists(tables)
    loc = as_loc([[16] * 20] * 6, "cpu")
    with pytest.raises(ValueError, match=r"req_pool_indices\[2\] is 9"):
        dsv4_npu_ops.write_req_tables(
            tables, torch.tensor([0, 1, 9]), torch.tensor([0, 0, 0]), torch.tensor([4, 4, 4]), loc
        )
    assert lists(tables) == before


BAD_TABLES = [
    (SlotTable(torch.zeros(4, 300).int().t().contiguous().t(), 16), "table of pool swa has strides [1, 4]"),
    (SlotTable(torch.zeros(4, 299, dtype=torch.int32), 16), "table of pool swa has 299 columns for 299 units"),
    (SlotTable(torch.zeros(300, dtype=torch.int32), 16), "table of pool swa has shape [300], expected 2 dimensions"),
    (
        SlotTable(torch.zeros(1, 300).int().expand(4, 300), 16),
        "table of pool swa has strides [0, 1], expected rows that",
    ),
]


@pytest.mark.parametrize("bad, message", BAD_TABLES, ids=[message for _, message in BAD_TABLES])
def test_bad_tables(bad, message):
    good = poisoned_tables("cpu")
    tables = RequestTables.of(good.pools | {"swa": bad}, max_context_len=300)
    with pytest.raises(ValueError) as error:
        dsv4_npu_ops.write_req_tables(tables, **arguments())
    assert f"write_req_tables: {message}" in str(error.value)


@pytest.mark.cpu_only
def test_more_pages_than_a_ring_has_columns():
    tables = poisoned_tables("cpu", {"swa": (4, torch.int32, 3)})
    rows = (torch.tensor([1]), torch.tensor([3]), torch.tensor([13]))
    with pytest.raises(ValueError, match=r"ends\[0\] is 13, expected units within the columns of every table"):
        dsv4_npu_ops.write_req_tables(tables, *rows, as_loc([[16] * 10] * 6, "cpu"))


def op_arguments(tables, rows, loc):
    """Arguments of the torch op for tables of slots in all pools."""
    return *tables.written_pools, tables.max_context_len, *rows, loc.in_order()


@pytest.mark.parametrize(
    "place, value, message",
    [
        (0, [], "tables has 0 entries, expected 6, one for each pool whose kind has one"),
        (1, [1] * 5, "addressing has 5 entries, expected 6"),
        (1, [5] * 6, "tables has 6 entries, expected 0, one for each pool whose kind has one"),
        (1, [5, *[1] * 5], "kind of pool full is 5, expected 0 (not written), 1 (pages) or 2 (slots)"),
        (1, [7, *[1] * 5], "address of pool full is 7, expected a number of RequestTables"),
        (1, [1 << 21, *[1] * 5], "address of pool full is 2097152, expected a number of RequestTables"),
        (1, [1 | 31 << 3, *[1] * 5], "address of pool full is 249, expected a number of RequestTables"),
        (1, [6 << 18, *[1] * 5], "address of pool full is 1572864, expected a number of RequestTables"),
        (6, [], "loc has 0 entries, expected 6"),
    ],
)
def test_bad_lists(place, value, message):
    rows = (torch.tensor([1]), torch.tensor([0]), torch.tensor([4]))
    arguments = list(op_arguments(poisoned_tables("cpu"), rows, as_loc([[16] * 4] * 6, "cpu")))
    arguments[place] = value
    if "kind of" in message:
        arguments[0] = arguments[0][1:]
    with pytest.raises(ValueError) as error:
        torch.ops.dsv4_npu_ops.write_req_tables(*arguments)
    assert f"write_req_tables: {message}" in str(error.value)


def test_one_state_start_alone():
    tables = poisoned_tables("cpu")
    rows = (torch.tensor([1]), torch.tensor([0]), torch.tensor([4]))
    loc = as_loc([[16] * 4] * 6, "cpu")
    with pytest.raises(ValueError, match="given for one state pool, expected both or none"):
        torch.ops.dsv4_npu_ops.write_req_tables(*op_arguments(tables, rows, loc), c4_state_starts=torch.tensor([0]))


BEYOND_SLOTS = 5

# A bad row in the middle of three: requests, starts, ends, the fault, and the value that the error words carry.
BAD_ROWS = [
    ([0, 9, 1], [0, 0, 0], [4, 4, 4], 3, 9),
    ([0, -1, 1], [0, 0, 0], [4, 4, 4], 3, -1),
    ([0, 3, 1], [0, -8, 0], [4, 4, 4], 1, 4),
    ([0, 3, 1], [0, 5, 0], [4, 4, 4], 2, 4),
    ([0, 3, 1], [0, 0, 0], [4, 301, 4], 4, 301),
    ([0, 3, 1], [0, 0, 0], [4, 20, 4], BEYOND_SLOTS, 20),
]


@pytest.mark.device_only
@pytest.mark.parametrize("blocks", [1, 7])
@pytest.mark.parametrize("requests, starts, ends, fault, value", BAD_ROWS)
def test_a_bad_row_on_a_device_is_padding_and_reported(ascend_sim, blocks, requests, starts, ends, fault, value):
    tables = poisoned_tables("cpu")
    want = lists(tables)
    locs = [list(range(100, 116))] * 6
    oracle.write_req_tables(want, sizes(SLOTS), [0, 1], [0, 0], [4, 4], locs, None)
    rows = (torch.tensor(values) for values in (requests, starts, ends))
    ascend_sim.force_blocks(blocks)
    dsv4_npu_ops.write_req_tables(tables, *rows, as_loc(locs, "cpu"))
    ascend_sim.force_blocks(0)
    assert lists(tables) == want
    assert ascend_sim.take_errors() == [[5, fault, 1, value, 0, 0, 0, 0]]


@pytest.mark.simulated_only
def test_device_traffic(ascend_sim):
    """One launch that moves each slot in once and out once, many rows a copy where they are equally long."""
    tables = poisoned_tables("cpu", max_requests=64)
    requests, starts = torch.arange(64), torch.full((64,), 96)
    loc = as_loc([list(range(64 * 32))] * 6, "cpu")
    dsv4_npu_ops.write_req_tables(tables, requests, starts, starts + 32, loc)
    (launch,) = ascend_sim.take_counters()
    assert launch["kernel"] == "write_req_tables"
    slots = 4 * 64 * 32 + 64 * 8 + 64
    rows = launch["blocks"] * 3 * 64 * 8
    assert launch["mte3_bytes"] == 4 * slots
    assert launch["mte2_bytes"] == 4 * slots + rows
    assert launch["mte2_calls"] < 100 + 12 * launch["blocks"]


@pytest.mark.device_only
def test_more_rows_than_a_device_takes():
    many = torch.zeros(4097, dtype=torch.int64)
    with pytest.raises(ValueError, match="req_pool_indices has 4097 entries, expected at most 4096 on a device"):
        dsv4_npu_ops.write_req_tables(poisoned_tables("cpu"), many, many, many, as_loc([[]] * 6, "cpu"))


@pytest.mark.device_only
def test_as_many_rows_as_a_device_takes(ascend_sim):
    tables = poisoned_tables("cpu")
    requests, starts, ends = (torch.zeros(4096, dtype=torch.int64) for _ in range(3))
    requests[-1], ends[-1] = 2, 300
    want = lists(tables)
    locs = [list(range(300))] * 6
    oracle.write_req_tables(want, sizes(SLOTS), [2], [0], [300], locs, None)
    dsv4_npu_ops.write_req_tables(tables, requests, starts, ends, as_loc(locs, "cpu"))
    assert lists(tables) == want
    assert ascend_sim.take_errors() == []


@pytest.mark.one_variant
def test_opcheck(device):
    tables = poisoned_tables(device)
    rows = tuple(torch.tensor([value], device=device) for value in (1, 0, 4))
    loc = as_loc([[16] * 4] * 6, device)
    starts = dict(c4_state_starts=rows[1], c128_state_starts=rows[1])
    opcheck(torch.ops.dsv4_npu_ops.write_req_tables.default, op_arguments(tables, rows, loc), starts)

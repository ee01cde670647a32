"""Table writes against their oracle."""

import copy

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from reference import write_req_tables as oracle

import dsv4_npu_ops
from dsv4_npu_ops import KVLayout, OutCacheLoc, RequestTables

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
POISON = 7777


def poisoned_tables(device, max_requests=4, max_context_len=300, missing=()):
    """Tables whose every entry would show an accidental write; wider rows than the table, so that rows are strided."""
    layout = KVLayout(
        page_size=16,
        max_requests=max_requests,
        max_context_len=max_context_len,
        num_pages={pool: 4 for pool in POOLS if pool not in missing},
        device=device,
    )
    tables = RequestTables(layout)
    for pool in POOLS:
        rows, columns = getattr(tables, pool).shape
        wide = torch.full((rows, columns + 3 if columns else 0), POISON, dtype=torch.int32)
        setattr(tables, pool, wide.to(device)[:, :columns])
    return tables


def lists(tables):
    return [table.tolist() for table in tables.in_order()]


def as_loc(locs, device):
    return OutCacheLoc(*(torch.tensor(loc, dtype=torch.int32, device=device) for loc in locs))


@st.composite
def writes(draw):
    """(requests, starts, ends, state starts or None): several rows may name one request, without overlap."""
    rows = []
    for request in draw(st.permutations(range(4))):
        cuts = sorted(draw(st.lists(st.integers(0, 300), min_size=0, max_size=4)))
        for start, end in zip(cuts[::2], cuts[1::2], strict=False):
            rows.append((request, start, end))
    rows += [(draw(st.sampled_from([-5, 99, 0])), position, position) for position in draw(st.lists(st.integers(0, 9)))]
    rows = draw(st.permutations(rows))
    requests, starts, ends = ([row[i] for row in rows] for i in range(3))
    state_starts = None
    if draw(st.booleans()):
        # Only from `start` on, so that the rows of one request stay apart.
        state_starts = [[draw(st.integers(s, e)) for s, e in zip(starts, ends, strict=True)] for _ in range(2)]
    return requests, starts, ends, state_starts


@given(
    case=writes(),
    dtypes=st.tuples(*[st.sampled_from([torch.int32, torch.int64])] * 4),
    missing=st.sets(st.sampled_from(POOLS), max_size=2),
    tail=st.integers(0, 3),
    source=st.randoms(use_true_random=False),
)
def test_tables_equal_the_oracle(device, case, dtypes, missing, tail, source):
    requests, starts, ends, state_starts = case
    tables = poisoned_tables(device, missing=missing)
    locs = [[source.randint(-1, 9999) for _ in range(sum(e - s for s, e in zip(starts, ends, strict=True)) + tail)]] * 6
    want = copy.deepcopy(lists(tables))
    oracle.write_req_tables(want, requests, starts, ends, locs, state_starts)

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


def test_padding_rows_write_nothing(device):
    """Case 23: five blocks of 16, one real row, three padded ones that name the same request."""
    tables = poisoned_tables(device, max_requests=5, max_context_len=16)
    before = copy.deepcopy(lists(tables))
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
    assert tables.full[1, 2:6].tolist() == slots[:4]
    assert tables.c4_state[1, c4_start:6].tolist() == slots[: 6 - c4_start]
    assert tables.c128_state[1, c128_start:6].tolist() == slots[: 6 - c128_start]
    assert tables.c4_state[1, 6] == POISON


def test_what_an_allocator_returns_can_be_written_elsewhere(device):
    layout = KVLayout(page_size=16, max_requests=3, max_context_len=300, num_pages=dict.fromkeys(POOLS, 60))
    tables, copies = RequestTables(layout), RequestTables(layout)
    alloc = dsv4_npu_ops.KVAllocator(layout, tables)
    alloc.alloc_extend([0, 2], [0, 0], [130, 7])
    requests, starts, ends = torch.tensor([2, 0]), torch.tensor([7, 130]), torch.tensor([30, 260])
    loc = alloc.reserve_extend(requests, starts, ends)
    dsv4_npu_ops.write_req_tables(copies, requests, starts, ends, loc)
    for pool, table in zip(POOLS, copies.in_order(), strict=True):
        u = {"c4": 4, "c128": 128}.get(pool, 1)
        for request, start, end in ((2, 7, 30), (0, 130, 260)):
            interval = slice(start // u, end // u)
            assert torch.equal(table[request, interval], getattr(tables, pool)[request, interval])


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
    (dict(ends=torch.tensor([301])), "ends[0] is 301, expected an end within the columns of every table"),
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
    before = copy.deepcopy(lists(tables))
    with pytest.raises(ValueError) as error:
        dsv4_npu_ops.write_req_tables(tables, **arguments(**dict(bad)))
    assert f"write_req_tables: {message}" in str(error.value)
    assert lists(tables) == before


@pytest.mark.cpu_only
def test_a_bad_row_behind_good_ones_writes_nothing():
    tables = poisoned_tables("cpu")
    before = copy.deepcopy(lists(tables))
    loc = as_loc([[16] * 20] * 6, "cpu")
    with pytest.raises(ValueError, match=r"req_pool_indices\[2\] is 9"):
        dsv4_npu_ops.write_req_tables(
            tables, torch.tensor([0, 1, 9]), torch.tensor([0, 0, 0]), torch.tensor([4, 4, 4]), loc
        )
    assert lists(tables) == before


BAD_TABLES = [
    (dict(swa=torch.zeros(4, 300)), "tables.swa has dtype Float, expected Int"),
    (dict(swa=torch.zeros(3, 300, dtype=torch.int32)), "tables.swa has 3 rows, expected 4 like tables.full"),
    (dict(c4=torch.zeros(75, dtype=torch.int32)), "tables.c4 has shape [75], expected 2 dimensions"),
    (dict(c4=torch.zeros(75, 4, dtype=torch.int32).t()), "tables.c4 has strides [1, 4]"),
    (dict(full=torch.zeros(1, 300, dtype=torch.int32).expand(4, 300)), "tables.full has strides [0, 1]"),
]


@pytest.mark.parametrize("bad, message", BAD_TABLES, ids=[message for _, message in BAD_TABLES])
def test_bad_tables(bad, message):
    tables = poisoned_tables("cpu")
    for pool, table in bad.items():
        setattr(tables, pool, table)
    with pytest.raises(ValueError) as error:
        dsv4_npu_ops.write_req_tables(tables, **arguments())
    assert f"write_req_tables: {message}" in str(error.value)


def test_one_state_start_alone():
    tables = poisoned_tables("cpu")
    rows = (torch.tensor([1]), torch.tensor([0]), torch.tensor([4]))
    loc = as_loc([[16] * 4] * 6, "cpu")
    with pytest.raises(ValueError, match="given for one state pool, expected both or none"):
        torch.ops.dsv4_npu_ops.write_req_tables(
            *tables.in_order(), *rows, *loc.in_order(), c4_state_starts=torch.tensor([0])
        )


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
    want = copy.deepcopy(lists(tables))
    locs = [list(range(100, 116))] * 6
    oracle.write_req_tables(want, [0, 1], [0, 0], [4, 4], locs, None)
    rows = (torch.tensor(values) for values in (requests, starts, ends))
    ascend_sim.force_blocks(blocks)
    dsv4_npu_ops.write_req_tables(tables, *rows, as_loc(locs, "cpu"))
    ascend_sim.force_blocks(0)
    assert lists(tables) == want
    assert ascend_sim.take_errors() == [[5, fault, 1, value, 0, 0, 0, 0]]


@pytest.mark.simulated_only
def test_device_traffic(ascend_sim):
    """One launch that moves each slot in once and out once, many rows a copy where they are equally long."""
    tables = poisoned_tables("cpu", max_requests=64, max_context_len=300)
    requests, starts = torch.arange(64), torch.full((64,), 96)
    loc = as_loc([list(range(64 * 32))] * 6, "cpu")
    dsv4_npu_ops.write_req_tables(tables, requests, starts, starts + 32, loc)
    (launch,) = ascend_sim.take_counters()
    assert launch["kernel"] == "write_req_tables"
    slots = 4 * 64 * 32 + 64 * 8 + 64
    rows = launch["blocks"] * 3 * 64 * 8
    assert launch["mte3_bytes"] == 4 * slots
    assert launch["mte2_bytes"] == 4 * slots + rows
    assert launch["mte2_calls"] < 100


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
    want = copy.deepcopy(lists(tables))
    locs = [list(range(300))] * 6
    oracle.write_req_tables(want, [2], [0], [300], locs, None)
    dsv4_npu_ops.write_req_tables(tables, requests, starts, ends, as_loc(locs, "cpu"))
    assert lists(tables) == want
    assert ascend_sim.take_errors() == []


@pytest.mark.one_variant
def test_opcheck(device):
    tables = poisoned_tables(device)
    rows = tuple(torch.tensor([value], device=device) for value in (1, 0, 4))
    loc = as_loc([[16] * 4] * 6, device)
    starts = dict(c4_state_starts=rows[1], c128_state_starts=rows[1])
    opcheck(torch.ops.dsv4_npu_ops.write_req_tables.default, (*tables.in_order(), *rows, *loc.in_order()), starts)

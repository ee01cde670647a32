"""extend_from_lists against its oracle."""

from dataclasses import dataclass, field

import pytest
import torch
from backends import opcheck
from hypothesis import given
from hypothesis import strategies as st
from reference.extend_from_lists import extend_from_lists as oracle

import dsv4_npu_ops
from dsv4_npu_ops.ops import extend_from_lists, extend_needs

REQUESTS = 4
POISON = -7
DTYPES = (torch.int32, torch.int64)


@dataclass
class World:
    """Pools of an engine, as plain lists: free pages of full, swa and c128, the mapping, the table, the owners."""

    page_size: int
    c128_page_size: int
    lists: list[list[int]]
    mapping: list[int]
    table: list[list[int]]
    owners: list[int]
    last: dict[int, int] = field(default_factory=dict)

    @staticmethod
    def of(page_size, c128_page_size, pages, columns, shuffled=list):
        """pages: by pool. What no call may look at is poisoned."""
        lists = [shuffled(range(1, count + 1)) for count in pages]
        slots = (pages[0] + 1) * page_size
        return World(
            page_size,
            c128_page_size,
            lists,
            [POISON] * slots,
            [[POISON] * columns for _ in range(REQUESTS)],
            [POISON] * (pages[2] + 1),
        )

    def start(self, request, prefix):
        """Pages of a request's first `prefix` tokens, out of order with what is taken later."""
        if prefix % self.page_size:
            full, swa = self.lists[0].pop(), self.lists[1].pop()
            self.last[request] = full * self.page_size + (prefix - 1) % self.page_size
            self.mapping[self.last[request]] = swa * self.page_size + (prefix - 1) % self.page_size
        if prefix // 128 % self.c128_page_size:
            self.table[request][prefix // 128 // self.c128_page_size] = self.lists[2].pop()

    def run(self, rows, device, swa_tail=None, dtypes=(torch.int64,) * 4, decode=False):
        """One call beside the oracle; checks all that either may write. rows: (request, prefix, seq)."""
        rows = [(request, prefix, seq, self.last.get(request, 10**6)) for request, prefix, seq in rows]
        op = Tensors(self, rows, device, dtypes)
        ends = [torch.tensor([row[i] for row in rows], dtype=dtypes[i]) for i in (1, 2)]
        prefixes = None if decode else ends[0]
        needs = extend_needs(prefixes, ends[1], self.page_size, self.c128_page_size, swa_tail=swa_tail)
        want = oracle(
            rows,
            self.lists,
            self.mapping,
            self.table,
            self.owners,
            self.page_size,
            self.c128_page_size,
            swa_tail,
        )
        sizes = (*(len(want[i]) for i in (0, 2, 3, 4)), self.page_size, self.c128_page_size)
        taken = [len(before) - len(pages) for before, pages in zip(op.lists_before, self.lists, strict=True)]
        assert needs[:6] == (*(len(want[i]) for i in (0, 2, 3)), *taken)
        changed = [
            (i, column)
            for i, (request, prefix, seq, _) in enumerate(rows)
            if prefix < seq
            for column in range(len(self.table[0]))
            if self.table[request][column] != op.table_before[request][column]
        ]
        assert [(i, column) for i, begin, end in needs.new_columns.tolist() for column in range(begin, end)] == changed
        if decode:
            op.rows[1] = None
        got = extend_from_lists(*op.arguments(), *sizes, swa_tail=swa_tail)
        assert [loc.dtype for loc in got] == [torch.int32, torch.int64, *[torch.int32] * 3]
        assert [loc.tolist() for loc in got] == list(want)
        assert op.mapping.tolist() == self.mapping
        assert op.table.tolist() == self.table and bool((op.gaps == POISON).all())
        assert op.owners.tolist() == self.owners
        assert [pages.tolist() for pages in op.lists] == op.lists_before
        end = 0
        for request, prefix, seq, _ in rows:
            end += seq - prefix
            if seq > prefix:
                self.last[request] = want[0][end - 1]
        return got


class Tensors:
    """The same on a device: the table in strided rows, the lists as views behind pages that were taken before."""

    def __init__(self, world, rows, device, dtypes=(torch.int64,) * 4):
        columns = len(world.table[0])
        wide = torch.full((REQUESTS, columns + 3), POISON, dtype=torch.int32)
        wide[:, :columns] = torch.tensor(world.table, dtype=torch.int32)
        wide = wide.to(device)
        self.table, self.gaps = wide[:, :columns], wide[:, columns:]
        self.mapping = torch.tensor(world.mapping, dtype=torch.int64, device=device)
        self.owners = torch.tensor(world.owners, dtype=torch.int32, device=device)
        self.lists = [torch.tensor([POISON, *pages], dtype=torch.int64, device=device)[1:] for pages in world.lists]
        self.table_before = [list(row) for row in world.table]
        self.lists_before = [list(pages) for pages in world.lists]
        columns_of_rows = zip(*rows, strict=True) if rows else [()] * 4
        self.rows = [
            torch.tensor(values, dtype=dtype, device=device)
            for values, dtype in zip(columns_of_rows, dtypes, strict=True)
        ]

    def arguments(self):
        return [*self.rows, *self.lists, self.mapping, self.table, self.owners]


@st.composite
def batches(draw):
    """(page size, page size of c128, rows): some rows are padding, whose requests are nobody's."""
    page_size = draw(st.sampled_from([4, 8, 128, 256]))
    c128_page_size = draw(st.sampled_from([1, 2, 16]))
    rows = []
    for request in draw(st.permutations(range(REQUESTS)))[: draw(st.integers(0, REQUESTS))]:
        prefix = draw(st.one_of(st.integers(0, 700), st.sampled_from([0, 128, 255, 256, 512])))
        new = draw(st.one_of(st.integers(0, 9), st.integers(100, 600), st.just(-prefix % page_size)))
        rows.append((request, prefix, prefix + new))
    for length in draw(st.lists(st.integers(0, 300), max_size=3)):
        rows.insert(draw(st.integers(0, len(rows))), (draw(st.sampled_from([-5, 99])), length, length))
    return page_size, c128_page_size, rows


def pages_taken(page_size, rows, unit=1):
    return sum(-(-(seq // unit) // page_size) - -(-(prefix // unit) // page_size) for _, prefix, seq in rows)


@given(
    batch=batches(),
    dtypes=st.tuples(*[st.sampled_from(DTYPES)] * 4),
    left=st.integers(0, 2),
    source=st.randoms(use_true_random=False),
)
def test_equals_the_oracle(device, batch, dtypes, left, source):
    """Lists are used up to the last page where `left` is 0."""
    page_size, c128_page_size, rows = batch
    live = [row for row in rows if row[0] in range(REQUESTS)]
    needed = [
        pages_taken(page_size, live) + sum(prefix % page_size > 0 for _, prefix, _ in live) + left,
        pages_taken(page_size, live) + sum(prefix % page_size > 0 for _, prefix, _ in live) + left,
        pages_taken(c128_page_size, live, 128)
        + sum(prefix // 128 % c128_page_size > 0 for _, prefix, _ in live)
        + left,
    ]
    world = World.of(page_size, c128_page_size, needed, 12, lambda ids: source.sample(list(ids), len(ids)))
    for request, prefix, _ in live:
        world.start(request, prefix)
    world.run(rows, device, dtypes=dtypes)
    assert [len(pages) for pages in world.lists] == [left] * 3


@given(prefix=st.integers(0, 40), new=st.integers(1, 60), tail_pages=st.integers(0, 5), rest=st.integers(0, 1))
def test_only_a_tail_gets_swa_slots(device, prefix, new, tail_pages, rest):
    """Tails from a page's start, without any token, and longer than what is new."""
    seq = prefix + new
    tail = 0 if rest else max(0, seq - (seq // 8 - tail_pages) * 8)
    world = World.of(8, 2, (20, 20, 3), 4, lambda ids: list(ids)[::-1])
    world.start(2, prefix)
    world.run([(1, 5, 5), (2, prefix, seq)], device, swa_tail=tail)


def test_case_15(device):
    """300 tokens, of which the last 128 from token 256 on could be a window: with a tail of 44 the first 256 have 0."""
    world = World.of(128, 16, (4, 4, 1), 2)
    loc = world.run([(3, 0, 300)], device, swa_tail=44)
    assert world.mapping[128 : 128 + 300] == [0] * 256 + list(range(128, 172))
    assert loc[1].tolist() == [0] * 256 + list(range(128, 172))
    assert len(world.lists[1]) == 3


def test_a_history(device):
    """Chunks, decodes and whole-page reservations of the same requests, one after another."""
    world = World.of(128, 16, (60, 60, 6), 3, lambda ids: list(ids)[::-1])
    world.run([(0, 0, 130), (2, 0, 2047)], device)
    world.run([(2, 2047, 2177)], device)
    for step in range(1, 7):
        world.run([(2, 2176 + step, 2177 + step), (0, 129 + step, 130 + step)], device, decode=step > 2)
    world.run([(0, 136, 137), (2, 2183, 2184)], device, dtypes=(torch.int32,) * 4, decode=True)
    world.run([(1, 640, 640), (2, 2184, 2304)], device)
    world.run([(2, 2304, 2432), (3, 0, 128)], device)


@pytest.mark.parametrize("rows", [[], [(99, 7, 7)], [(0, 128, 128), (-1, 5, 5)]])
def test_nothing_new(device, rows):
    world = World.of(128, 16, (0, 0, 0), 1)
    assert [loc.numel() for loc in world.run(rows, device)] == [0] * 5


@pytest.mark.one_variant
@pytest.mark.parametrize("c128_page_size", [16, 8192])
def test_a_million_tokens(device, c128_page_size):
    """One row, lists used up to the last page; pages of c128 in many parts, and longer than a tile."""
    columns = 8192 // c128_page_size
    world = World.of(128, c128_page_size, (8192, 8192, columns), columns, lambda ids: list(ids)[::-1])
    world.run([(1, 0, 2**20)], device)
    assert world.lists == [[], [], []]


def test_needs_by_hand():
    lens = torch.tensor([2046, 640, 512]), torch.tensor([2177, 640, 640])
    needs = extend_needs(*lens, 128, 16)
    assert needs[:6] == (131 + 128, 33 + 32, 2 + 1, 2 + 1, 2 + 1, 1)
    assert needs.new_columns.tolist() == [[0, 1, 2]]
    assert extend_needs(torch.tensor([0]), torch.tensor([300]), 128, 16, swa_tail=44).swa_pages == 1
    assert extend_needs(None, torch.tensor([129, 5]), 128, 16)[:6] == (2, 0, 0, 1, 1, 0)
    assert extend_needs(None, torch.tensor([], dtype=torch.int64), 128, 16)[:6] == (0,) * 6


@pytest.mark.parametrize(
    "prefixes, lens, message",
    [
        ([-1], [3], r"prefix_lens\[0\] is -1, expected at least 0"),
        ([4], [3], r"seq_lens\[0\] is 3, expected no less than prefix_lens, which is 4"),
        (None, [0], r"seq_lens\[0\] is 0, expected at least 1 without prefix_lens"),
        ([0], [2**63 - 1], r"seq_lens\[0\] is 9223372036854775807, expected at most 2147483647"),
        ([1, 2], [3], r"prefix_lens has shape \[2\], expected \[1\]"),
    ],
)
def test_needs_of_bad_rows(prefixes, lens, message):
    with pytest.raises(ValueError, match=f"^extend_needs: {message}"):
        extend_needs(None if prefixes is None else torch.tensor(prefixes), torch.tensor(lens), 128, 16)


@pytest.mark.device_only
def test_a_page_of_c128_that_is_longer_than_a_tile(ascend_sim):
    """On one block, which has all of it."""
    tokens = 4200 * 128
    world = World.of(4096, 8192, (132, 132, 1), 1)
    ascend_sim.force_blocks(1)
    world.run([(1, 0, tokens)], "cpu")
    ascend_sim.force_blocks(0)
    assert ascend_sim.take_errors() == []


def test_many_rows_and_small_pages(device):
    """More parts than a batch, more rows than a chunk, and pages that are longer than a tile."""
    world = World.of(4, 1, (2400, 2400, 40), 12)
    world.run([(99, 3, 3)] * 300 + [(0, 0, 1111), (99, 1, 1), (3, 0, 1200)], device)
    world = World.of(8192, 4096, (3, 3, 2), 1)
    world.start(1, 100)
    world.run([(1, 100, 12000)], device)


EXAMPLE_ROWS = [(3, 2046, 2177), (0, 640, 640), (1, 512, 640)]


def example():
    world = World.of(128, 16, (24, 16, 24), 3)
    world.lists = [[7, 2, 9, 14], [4, 11, 3], [8, 21]]
    world.mapping[2685] = 893
    world.table[3][0], world.table[1][0] = 5, 12
    world.last = {3: 2685}
    return world


def test_the_readme_example(device):
    world = example()
    full, swa, c4, c128, replaced = world.run(EXAMPLE_ROWS, device)
    assert full.tolist() == [2686, 2687, *range(896, 1024), 256, *range(1152, 1280)]
    assert swa.tolist() == [894, 895, *range(512, 640), 1408, *range(384, 512)]
    assert c4.tolist() == [671, *range(224, 256), *range(288, 320)]
    assert c128.tolist() == [95, 128, 196] and replaced.tolist() == [POISON]
    assert world.table[3][1] == 8 and world.owners[8] == 1
    assert world.lists == [[14], [], [21]]


SIZES = (259, 65, 3, 1, 128, 16)


def example_arguments(**bad):
    """Arguments of the op for the example, with what is bad put in its place."""
    world = example()
    rows = [(*row, world.last.get(row[0], 10**6)) for row in EXAMPLE_ROWS]
    tensors = Tensors(world, rows, "cpu")
    names = (
        "req_pool_indices prefix_lens seq_lens last_loc full_pages swa_pages c128_pages full_to_swa c128_table "
        "c128_owners num_tokens num_c4 num_c128 num_c128_pages page_size c128_page_size swa_tail"
    ).split()
    good = dict(zip(names, [*tensors.arguments(), *SIZES, None], strict=True))
    assert set(bad) <= set(good)
    return good | bad


BAD_ARGUMENTS = [
    (dict(req_pool_indices=torch.tensor([1.0])), "req_pool_indices has dtype Float, expected Int or Long"),
    (dict(prefix_lens=torch.tensor([1])), "prefix_lens has shape [1], expected [3]"),
    (dict(seq_lens=torch.zeros(3)), "seq_lens has dtype Float, expected Int or Long"),
    (dict(last_loc=torch.zeros(6, dtype=torch.int64)[::2]), "last_loc has strides [2]"),
    (dict(full_pages=torch.zeros(4, dtype=torch.int32)), "full_pages has dtype Int, expected Long"),
    (dict(swa_pages=torch.zeros(4, 1, dtype=torch.int64)), "swa_pages has shape [4, 1], expected 1 dimension"),
    (dict(c128_pages=torch.zeros(8, dtype=torch.int64)[::2]), "c128_pages has strides [2]"),
    (dict(full_to_swa=torch.zeros(640, dtype=torch.int32)), "full_to_swa has dtype Int, expected Long"),
    (dict(c128_table=torch.zeros(4, 3, dtype=torch.int64)), "c128_table has dtype Long, expected Int"),
    (dict(c128_owners=torch.zeros(4, dtype=torch.int64)), "c128_owners has dtype Long, expected Int"),
    (dict(num_tokens=-1), "num_tokens is -1, expected 0 to 2147483647"),
    (dict(num_c4=260), "num_c4 is 260, expected 0 to 259"),
    (dict(num_c128=-1), "num_c128 is -1, expected 0 to 259"),
    (dict(num_c128_pages=4), "num_c128_pages is 4, expected 0 to 3"),
    (dict(page_size=96), "page size of pool full is 96, expected a power of two"),
    (dict(page_size=2), "page_size is 2, expected at least 4, the tokens of a group"),
    (dict(c128_page_size=0), "page size of pool c128 is 0, expected a power of two"),
    (dict(swa_tail=-1), "swa_tail is -1, expected 0 to 2147483647"),
]


@pytest.mark.parametrize("bad, message", BAD_ARGUMENTS, ids=[message for _, message in BAD_ARGUMENTS])
def test_bad_arguments(bad, message):
    with pytest.raises(ValueError) as error:
        torch.ops.dsv4_npu_ops.extend_from_lists(*example_arguments(**bad).values())
    assert f"extend_from_lists: {message}" in str(error.value)


@pytest.mark.cpu_only
def test_a_decode_of_a_row_without_tokens():
    rows = dict(prefix_lens=None, seq_lens=torch.tensor([2047, 0, 641]))
    with pytest.raises(ValueError, match=r"prefix_lens\[1\] is -1, expected at least 0"):
        torch.ops.dsv4_npu_ops.extend_from_lists(*example_arguments(**rows).values())


def test_tokens_without_rows():
    none = torch.zeros(0, dtype=torch.int64)
    rows = dict(req_pool_indices=none, prefix_lens=none, seq_lens=none, last_loc=none)
    with pytest.raises(ValueError, match="num_tokens is 259, expected 0 to 0"):
        torch.ops.dsv4_npu_ops.extend_from_lists(*example_arguments(**rows).values())


# What stands in tensors: (argument, index, value), the message, and on a device the code, the row and the value.
BAD_VALUES = [
    ("prefix_lens", 0, -3, "prefix_lens[0] is -3, expected at least 0", 1, 2177),
    ("seq_lens", 0, 2045, "seq_lens[0] is 2045, expected no less than prefix_lens, which is 2046", 2, 2045),
    ("req_pool_indices", 0, 4, "req_pool_indices[0] is 4, expected 0 <= index < 4 (rows of c128_table)", 3, 4),
    ("req_pool_indices", 0, -1, "req_pool_indices[0] is -1, expected 0 <= index < 4", 3, -1),
    ("seq_lens", 0, 6272, "seq_lens[0] is 6272, expected groups within the 3 columns of c128_table", 4, 6272),
    ("last_loc", 0, 2684, "last_loc[0] is 2684, expected the slot of token 2045, within the 3200", 5, 2684),
    ("last_loc", 0, 3325, "last_loc[0] is 3325, expected the slot of token 2045", 5, 3325),
    ("last_loc", 0, 125, "last_loc[0] is 125, expected the slot of token 2045", 5, 125),
    ("last_loc", 0, -1, "last_loc[0] is -1, expected the slot of token 2045", 5, -1),
    (
        "seq_lens",
        0,
        2500,
        "row 0 brings 454 tokens, 114 and 4 groups and 1 pages of c128 behind 0, 0, 0 and 0",
        6,
        2500,
    ),
    (
        "seq_lens",
        2,
        641,
        "row 2 brings 129 tokens, 32 and 1 groups and 0 pages of c128 behind 131, 33, 2 and 1",
        6,
        641,
    ),
    ("full_to_swa", 2685, 0, "full_to_swa at last_loc[0] is 0, expected the swa slot of token 2045", 9, 0),
    ("full_pages", 1, 0, "full_pages[1] is 0, expected a page from 1 up, of the pool", 9, 0),
    ("full_pages", 1, 25, "full_pages[1] is 25, expected a page from 1 up, of the pool", 9, 25),
    ("swa_pages", 0, -4, "swa_pages[0] is -4, expected a page from 1 up, of the pool", 9, -4),
    ("swa_pages", 0, 2**24, f"swa_pages[0] is {2**24}, expected a page from 1 up, of the pool", 9, 2**24),
    ("c128_pages", 0, 25, "c128_pages[0] is 25, expected a page from 1 up, of the pool", 9, 25),
]
VALUE_IDS = [f"{name}[{i}]={value}" for name, i, value, *_ in BAD_VALUES]


@pytest.mark.cpu_only
@pytest.mark.parametrize("name, index, value, message, code, word", BAD_VALUES, ids=VALUE_IDS)
def test_bad_values_write_nothing(name, index, value, message, code, word):
    arguments = example_arguments()
    arguments[name][index] = value
    before = {n: a.clone() for n, a in arguments.items() if isinstance(a, torch.Tensor)}
    with pytest.raises(ValueError) as error:
        torch.ops.dsv4_npu_ops.extend_from_lists(*arguments.values())
    assert f"extend_from_lists: {message}" in str(error.value)
    assert all(torch.equal(arguments[n], tensor) for n, tensor in before.items())


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    "bad, message",
    [
        (dict(num_tokens=260), "num_c128 and num_c128_pages are 260, 65, 3 and 1, expected 259, 65, 3 and 1"),
        (dict(num_c4=66), "are 259, 66, 3 and 1, expected 259, 65, 3 and 1 as the rows bring"),
        (dict(num_c128=4), "are 259, 65, 4 and 1, expected 259, 65, 3 and 1 as the rows bring"),
        (dict(num_c128_pages=2), "are 259, 65, 3 and 2, expected 259, 65, 3 and 1 as the rows bring"),
        (dict(num_c4=64), "row 2 brings 128 tokens, 32 and 1 groups and 0 pages of c128 behind 131, 33, 2 and 1"),
        (dict(num_c128=2), "num_c128 and num_c128_pages, which are 259, 65, 2 and 1"),
        (dict(num_c128_pages=0), "row 0 brings 131 tokens, 33 and 2 groups and 1 pages of c128 behind 0, 0, 0 and 0"),
        (dict(swa_tail=130), "swa_tail is 130, expected tails from a page's start, but seq_lens[0] is 2177"),
        (
            dict(full_pages=torch.tensor([7, 2])),
            "row 2 takes 1, 1 and 0 pages and the rows before it 2, 2 and 1, expected together",
        ),
        (dict(swa_pages=torch.tensor([4, 11])), "swa_pages and c128_pages have, which is 4, 2 and 2"),
        (
            dict(c128_pages=torch.tensor([], dtype=torch.int64)),
            "row 0 takes 2, 2 and 1 pages and the rows before it 0, 0 and 0",
        ),
    ],
)
def test_numbers_that_do_not_add_up_write_nothing(bad, message):
    arguments = example_arguments(**bad)
    before = {n: a.clone() for n, a in arguments.items() if isinstance(a, torch.Tensor)}
    with pytest.raises(ValueError) as error:
        torch.ops.dsv4_npu_ops.extend_from_lists(*arguments.values())
    assert message in str(error.value)
    assert all(torch.equal(arguments[n], tensor) for n, tensor in before.items())


@pytest.mark.cpu_only
def test_a_started_page_that_is_not_there():
    arguments = example_arguments()
    arguments["c128_table"][1, 0] = 0
    with pytest.raises(ValueError, match=r"the page of group 4 in c128_table\[1\] is 0, expected one of the 25"):
        torch.ops.dsv4_npu_ops.extend_from_lists(*arguments.values())


@pytest.mark.device_only
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name, index, value, message, code, word", BAD_VALUES, ids=VALUE_IDS)
def test_what_is_bad_on_a_device_is_left_out_and_reported(ascend_sim, blocks, name, index, value, message, code, word):
    """A bad row as if it were padding; a bad page without its slots."""
    arguments = example_arguments()
    arguments[name][index] = value
    world = example()
    row = index if code != 9 else None
    rows = [(*r, world.last.get(r[0], 10**6)) for i, r in enumerate(EXAMPLE_ROWS) if i != row]
    want = oracle(rows, world.lists, world.mapping, world.table, world.owners, 128, 16)
    ascend_sim.force_blocks(blocks)
    got = torch.ops.dsv4_npu_ops.extend_from_lists(*arguments.values())
    ascend_sim.force_blocks(0)
    errors = ascend_sim.take_errors()
    assert {tuple(lane[:4]) for lane in errors} == {(14, code, row or 0, word)}
    if code != 9:
        assert len(errors) == 1
        for loc, slots in zip(got, want, strict=True):
            assert loc.tolist() == slots + [0] * (loc.numel() - len(slots))
        assert arguments["full_to_swa"].tolist() == world.mapping
        assert arguments["c128_table"].tolist() == world.table
        assert arguments["c128_owners"].tolist() == world.owners
        return
    mapping = example().mapping
    if name == "full_to_swa":
        mapping[2685] = 0
    for full, swa in zip(got[0].tolist(), got[1].tolist(), strict=True):
        if full > 0:
            mapping[full] = swa
    assert arguments["full_to_swa"].tolist() == mapping
    untouched = example() if name == "c128_pages" else world
    assert arguments["c128_table"].tolist() == untouched.table
    assert arguments["c128_owners"].tolist() == untouched.owners
    # Slots of the bad page alone are missing.
    lost = {
        "full_to_swa": (1, [0, 1]),
        "full_pages": (0, [130]),
        "swa_pages": (1, list(range(2, 130))),
        "c128_pages": (3, [1]),
    }[name]
    for pool, (loc, slots) in enumerate(zip(got, want, strict=True)):
        entries = lost[1] if pool == lost[0] or (pool == 1 and lost[0] == 0) else []
        assert loc.tolist() == [0 if entry in entries else slot for entry, slot in enumerate(slots)]


@pytest.mark.device_only
@pytest.mark.parametrize("blocks", [1, 7])
def test_too_few_pages_on_a_device(ascend_sim, blocks):
    arguments = example_arguments(swa_pages=torch.tensor([4, 11]))
    ascend_sim.force_blocks(blocks)
    full, _, _, c128, _ = torch.ops.dsv4_npu_ops.extend_from_lists(*arguments.values())
    ascend_sim.force_blocks(0)
    assert ascend_sim.take_errors() == [[14, 7, 2, 640, 0, 0, 0, 0]]
    assert full.tolist() == [2686, 2687, *range(896, 1024), 256] + [0] * 128
    assert c128.tolist() == [95, 128, 0]


@pytest.mark.device_only
def test_what_a_long_bad_row_leaves_is_zeros(ascend_sim):
    world = World.of(128, 16, (150, 150, 9), 5)
    rows = [(1, 0, 130, -1), (-2, 0, 17000, -1)]
    got = extend_from_lists(*Tensors(world, rows, "cpu").arguments(), 17130, 4282, 133, 8, 128, 16)
    want = oracle(rows[:1], world.lists, world.mapping, world.table, world.owners, 128, 16)
    (lane,) = ascend_sim.take_errors()
    assert lane[:4] == [14, 3, 1, -2]
    for loc, slots in zip(got, want, strict=True):
        assert loc.tolist() == slots + [0] * (loc.numel() - len(slots))


@pytest.mark.device_only
def test_a_tail_inside_a_page_on_a_device(ascend_sim):
    torch.ops.dsv4_npu_ops.extend_from_lists(*example_arguments(swa_tail=130).values())
    assert [8, 0, 2177] in [lane[1:4] for lane in ascend_sim.take_errors()]


@pytest.mark.device_only
def test_errors_are_spelled_out(ascend_sim):
    codes = dsv4_npu_ops.device_errors.__globals__["_OPS"][14]
    assert codes[0] == "extend_from_lists" and sorted(codes[1]) == list(range(1, 10))


@pytest.mark.simulated_only
def test_device_traffic(ascend_sim):
    """One launch; of the lists it reads what it takes, and it writes each slot once to each place."""
    world = World.of(128, 16, (64 * 8, 64 * 8, 64), 1)
    world.table = [[0] for _ in range(REQUESTS)]
    rows = [(i % REQUESTS, 0, 1024, -1) for i in range(3)]
    tensors = Tensors(world, rows, "cpu")
    extend_from_lists(*tensors.arguments(), 3 * 1024, 3 * 256, 3 * 8, 3, 128, 16)
    (launch,) = ascend_sim.take_counters()
    assert launch["kernel"] == "extend_from_lists"
    tokens = 3 * 1024
    assert launch["mte3_bytes"] == tokens * (4 + 8 + 8 + 1) + 3 * 8 * 4 + 3 * 12
    # 8 pages of each row to the mapping, a run of each token output a block, a page and a run of each row's groups.
    assert launch["mte3_calls"] == 3 * 8 + 3 * launch["blocks"] + 3 * (3 + 1)
    assert launch["mte2_calls"] <= 8 * launch["blocks"]
    pages = 3 * 8 * 2 + 3
    assert launch["mte2_bytes"] <= 3 * 4 + 8 * (pages + 2 * launch["blocks"]) + launch["blocks"] * 4 * 3 * 8


@pytest.mark.one_variant
def test_opcheck(device):
    opcheck(torch.ops.dsv4_npu_ops.extend_from_lists.default, tuple(example_arguments().values()))

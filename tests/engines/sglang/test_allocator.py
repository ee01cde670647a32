"""The allocator beside SGLang's own, over random histories and call by call."""

import random

import pytest
import torch

from engines.sglang.allocations import GROUP, PAGE, Pools, assert_same, assert_same_bundles, assert_same_state, ours
from engines.sglang.world import VERSION, sgl

ROWS, CONTEXT = 5, 3 * GROUP


class Pair:
    """SGLang's own functions on one set of pools, ours on another: the same calls, compared after each."""

    def __init__(self, *sizes, **options):
        self.theirs, self.ours = Pools(*sizes, **options), Pools(*sizes, **options)
        self.fallbacks = []

    def __call__(self, name, *arguments, **options):
        theirs = getattr(self.theirs, name)(*arguments, **options)
        with ours() as fallbacks:
            our = getattr(self.ours, name)(*arguments, **options)
        self.fallbacks += fallbacks
        if name in ("extend", "decode", "reserve"):
            assert_same_bundles(theirs, our)
        assert_same(self.theirs, self.ours)
        return our

    def allocate(self, name, *arguments, **options):
        """An allocation that may find too little: then ours has changed nothing, and theirs is taken back."""
        lists, before = self.theirs.free_lists(), self.ours.state()
        theirs = getattr(self.theirs, name)(*arguments, **options)
        with ours() as fallbacks:
            our = getattr(self.ours, name)(*arguments, **options)
        self.fallbacks += fallbacks
        assert_same_bundles(theirs, our)
        if our is None:
            assert_same_state(before, self.ours.state())
            for part, pages in lists:
                part.free_pages = pages
        assert_same(self.theirs, self.ours)
        return our


def free_rows(pair):
    return [row for row in range(1, ROWS + 1) if row not in pair.theirs.requests]


def reads_past_its_list(pools, rows):
    """Whether SGLang 0.5.18 indexes its free pages behind the last one: where a decode uses them up."""
    needed = sum(pools.requests[row].allocated % PAGE == 0 for row in rows)
    lists = [pages for part in pools.parts()[:2] for pages in (len(part.free_pages), part.available_size() // PAGE)]
    return VERSION == "0.5.18" and needed in lists


def random_step(pair, draws):
    """One call, or nothing where it does not apply."""
    pools = pair.theirs
    running = [row for row in pools.requests if pools.requests[row].allocated > 0]
    draws.shuffle(running)
    batch = running[: draws.randint(1, ROWS)]
    step = draws.choice(["start", "start", "extend", "extend", "decode", "decode", "reserve", "free", "cache", "evict"])
    if step == "start" and free_rows(pair):
        row = draws.choice(free_rows(pair))
        cached = draws.randrange(len(pools.tree)) if pools.tree and draws.random() < 0.6 else None
        if cached is None:
            pair("start", row)
        else:
            most = pools.tree[cached].tokens
            tokens = draws.randint(1, most // GROUP) * GROUP
            # The tree may match more than the prefix that the request starts from.
            pair("start", row, cached, tokens, matched=draws.choice([tokens, most]))
    elif step == "extend" and pools.requests:
        rows = draws.sample(list(pools.requests), draws.randint(1, len(pools.requests)))
        growth = [(row, grown(pools.requests[row].allocated, draws)) for row in rows]
        pair.allocate("extend", growth)
    elif step == "decode" and batch and all(pools.requests[row].allocated < CONTEXT for row in batch):
        if not reads_past_its_list(pools, batch):
            pair.allocate("decode", batch)
    elif step == "reserve" and batch:
        pair.allocate("reserve", batch, draws.randint(1, 9))
    elif step == "free" and running:
        pair("free", running[0])
    elif step == "cache" and running:
        pair("cache", running[0])
    elif step == "evict" and pools.tree:
        cached = draws.randrange(len(pools.tree))
        if not pools.users(cached):
            pair("evict", cached)


def grown(length, draws):
    edges = [length // PAGE * PAGE + PAGE, length // GROUP * GROUP + GROUP, length + 1, length + 5]
    end = draws.choice(edges) if draws.random() < 0.5 else length + draws.randint(0, 1500)
    return max(length, min(CONTEXT, end))


@pytest.mark.parametrize("need_sort", [False, True])
@pytest.mark.parametrize("sizes", [(300, 300, 40), (60, 60, 9), (60, 48, 9), (70, 70, 3)], ids=str)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 8))])
def test_histories(seed, sizes, need_sort):
    """Chunks, decodes, reservations, radix reuse, retraction; pools with room and nearly without."""
    draws = random.Random(f"{seed} {sizes} {need_sort}")
    pair = Pair(ROWS, CONTEXT, *sizes, need_sort=need_sort)
    for _ in range(50):
        random_step(pair, draws)
    assert pair.fallbacks == []


def test_a_row_of_many_pages():
    """More pages than SGLang's kernel takes at once, which its other form hands out."""
    pair = Pair(1, 205 * PAGE, 205, 205, 14)
    pair("start", 1)
    assert len(pair("extend", [(1, 205 * PAGE)]).out_full_loc) == 205 * PAGE
    assert [len(part.free_pages) for part in pair.ours.parts()] == [0, 0, 1]


@pytest.mark.parametrize("tail", [0, 44, 44 + PAGE, 300])
def test_a_swa_tail(tail):
    pair = Pair(2, CONTEXT, 40, 40, 4)
    pair("start", 1)
    pair("start", 2)
    pair("extend", [(2, 200)])
    bundle = pair("extend", [(1, 300)], tail)
    assert bundle.out_swa_loc.tolist()[: 300 - tail] == [0] * (300 - tail)
    pair("decode", [1] if tail else [2])
    assert pair.fallbacks == []


def test_a_swa_tail_on_a_cached_prefix():
    pair = Pair(2, CONTEXT, 60, 60, 8)
    pair("start", 1)
    pair("extend", [(1, 2 * GROUP)])
    pair("cache", 1)
    pair("start", 2, 0, GROUP)
    pair("extend", [(2, 2 * GROUP + 130)], 2 * 128 + 2)
    assert pair.fallbacks == []


@pytest.mark.parametrize("tail", [50, 173])
def test_a_swa_tail_that_starts_inside_a_page_is_sglangs(tail):
    pair = Pair(1, CONTEXT, 40, 40, 4)
    pair("start", 1)
    pair("extend", [(1, 300)], tail)
    assert pair.fallbacks and "a swa tail that does not start at a page" in pair.fallbacks[0]


def test_sglang_loses_a_page_of_full_when_swa_has_none():
    """Case 11: a decode to token 129 with one free page of full and none of swa. Theirs is gone, ours is not."""
    pair = Pair(1, CONTEXT, 2, 1, 1)
    pair("start", 1)
    pair("extend", [(1, 128)])
    full = [pools.parts()[0] for pools in (pair.theirs, pair.ours)]
    before = pair.ours.state()
    assert pair.theirs.decode([1]) is None
    with ours():
        assert pair.ours.decode([1]) is None
    assert [len(part.free_pages) for part in full] == [0, 1]
    assert_same_state(before, pair.ours.state())


@pytest.mark.skipif(VERSION != "0.5.18", reason="a fault of that version")
def test_a_decode_that_uses_up_the_free_pages():
    """The last row needs no page, and SGLang looks one up for it all the same, behind the end of the list."""
    pair = Pair(2, CONTEXT, 3, 3, 1)
    for row, length in ((1, 128), (2, 100)):
        pair("start", row)
        pair("extend", [(row, length)])
    with pytest.raises(IndexError):
        pair.theirs.decode([1, 2])
    with ours():
        bundle = pair.ours.decode([1, 2])
    assert bundle.out_full_loc.tolist() == [3 * PAGE, 2 * PAGE + 100]


@pytest.mark.parametrize(
    "sizes, end", [((1, 9, 9), 129), ((9, 1, 9), 129), ((99, 99, 0), GROUP), ((99, 99, 1), GROUP + 128)]
)
def test_any_pool_that_is_short_changes_nothing(sizes, end):
    pair = Pair(1, CONTEXT, *sizes)
    pair("start", 1)
    before = pair.ours.state()
    assert pair.allocate("extend", [(1, end)]) is None
    assert_same_state(before, pair.ours.state())


def test_lists_used_up_to_the_last_page():
    pair = Pair(1, CONTEXT, 16, 16, 1)
    pair("start", 1)
    pair("extend", [(1, GROUP)])
    assert [len(part.free_pages) for part in pair.ours.parts()] == [0, 0, 0]
    pair("free", 1)


@pytest.mark.parametrize("need_sort", [False, True])
def test_released_pages_are_merged_before_they_are_taken(need_sort):
    pair = Pair(3, CONTEXT, 20, 20, 3, need_sort=need_sort)
    for row, length in ((1, 700), (2, 600), (3, 900)):
        pair("start", row)
        pair("extend", [(row, length)])
    pair("free", 2)
    pair("free", 1)
    pair("extend", [(3, 900 + 8 * PAGE)])
    assert pair.fallbacks == []


def test_pages_that_are_replaced_are_released():
    """The tree matched three pages of c128, the request starts from one: two are given back for new ones."""
    pair = Pair(3, CONTEXT, 120, 120, 12)
    pair("start", 1)
    pair("extend", [(1, 3 * GROUP)])
    pair("cache", 1)
    pair("start", 2, 0, GROUP, matched=3 * GROUP)
    assert pair.ours.allocator.c128_page_refcount[1:5].tolist() == [3, 3, 3, 0]
    pair("extend", [(2, 2 * GROUP)])
    assert pair.ours.allocator.c128_page_refcount[1:5].tolist() == [3, 2, 3, 1]
    pair("extend", [(2, 3 * GROUP)])
    assert pair.ours.allocator.c128_page_refcount[1:6].tolist() == [3, 2, 2, 1, 1]
    pair("free", 2)
    pair("free", 1)
    assert pair.fallbacks == []


def test_several_rows_replace_pages_at_once():
    """Of different numbers, beside a row that replaces none."""
    pair = Pair(4, CONTEXT, 200, 200, 20)
    pair("start", 1)
    pair("extend", [(1, 3 * GROUP)])
    pair("cache", 1)
    pair("start", 2, 0, GROUP, matched=3 * GROUP)
    pair("start", 3)
    pair("start", 4, 0, 2 * GROUP, matched=3 * GROUP)
    pair("extend", [(2, 3 * GROUP), (3, 2 * GROUP), (4, 3 * GROUP)])
    assert pair.ours.allocator.c128_page_refcount[1:4].tolist() == [4, 3, 2]
    assert pair.fallbacks == []


def test_a_request_that_goes_back_replaces_its_own_pages():
    """Not what SGLang does, but what its functions allow."""
    pair = Pair(1, CONTEXT, 120, 120, 12)
    pair("start", 1)
    pair("extend", [(1, 3 * GROUP)])
    for pools in (pair.theirs, pair.ours):
        pools.requests[1].allocated = GROUP
    pair("extend", [(1, 2 * GROUP + 5)])
    assert pair.ours.allocator.c128_page_refcount[1:6].tolist() == [1, 0, 1, 1, 0]
    assert pair.fallbacks == []


def test_the_last_owner_of_a_replaced_page_gives_it_back():
    pair = Pair(3, CONTEXT, 120, 120, 4)
    pair("start", 1)
    pair("extend", [(1, 2 * GROUP)])
    pair("cache", 1)
    pair("start", 2, 0, GROUP, matched=2 * GROUP)
    pair("free", 1)
    pair("evict", 0)
    before = pair.ours.parts()[2].free_pages.tolist()
    pair("extend", [(2, 2 * GROUP)])
    replaced = int(pair.ours.pool.req_to_c128_sidecar[2, 1])
    after = pair.ours.parts()[2].free_pages.tolist()
    assert replaced == before[0] and after[0] == 2 and after[1:] == before[1:]


class NoReads(torch.utils._python_dispatch.TorchDispatchMode):
    """Names what would wait for a device, or depends on what stands there."""

    WAITS = ("_local_scalar_dense", "nonzero", "_unique2", "unique", "masked_select", "is_nonzero", "equal")

    def __init__(self):
        super().__init__()
        self.waits, self.launches = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().partition("::")[2].partition(".")[0]
        indexes_by_mask = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        if name in self.WAITS or indexes_by_mask:
            self.waits.append(name)
        self.launches.append(func.name())
        return func(*args, **(kwargs or {}))


def test_one_launch_and_nothing_read():
    """Of an allocation with its table writes; chunks, reservations, decodes and tails that take pages of all pools."""
    pools = Pools(4, CONTEXT, 300, 300, 40)
    with ours() as fallbacks:
        for row in (1, 2, 3, 4):
            pools.start(row)
        pools.extend([(1, GROUP - 1), (2, 100)])
        calls = {
            "extend": lambda: pools.extend([(2, GROUP + 200), (3, 300)]),
            "decode": lambda: pools.decode([1, 2, 3]),
            "decode to a new page": lambda: pools.decode([1]),
            "reserve": lambda: pools.reserve([1, 2, 3], 8),
            "tail": lambda: pools.extend([(4, 2 * GROUP + 256)], 256),
        }
        for name, call in calls.items():
            counted = NoReads()
            alloc = sgl.allocator.DSV4NPUTokenToKVPoolAllocator
            watched = {}
            for function in ("alloc_extend", "alloc_decode", "alloc_extend_swa_tail"):
                watched[function] = vars(alloc)[function]
                setattr(alloc, function, counting(counted, watched[function]))
            writes = {}
            for function in ("maybe_write_dsv4_extend", "maybe_write_dsv4_decode", "write_dsv4_prealloc_tables"):
                writes[function] = getattr(sgl.hooks, function)
                setattr(sgl.hooks, function, counting(counted, writes[function]))
            try:
                assert call() is not None
            finally:
                for function, original in watched.items():
                    setattr(alloc, function, original)
                for function, original in writes.items():
                    setattr(sgl.hooks, function, original)
            assert counted.waits == [], name
            launched = [op for op in counted.launches if op.startswith("dsv4_npu_ops::")]
            assert launched == ["dsv4_npu_ops::extend_from_lists"], name
            # What is left are views: the rest of each list.
            others = {op for op in counted.launches if not op.startswith("dsv4_npu_ops::")}
            assert others <= {"aten::slice.Tensor"}, (name, others)
    assert fallbacks == []


def test_a_row_that_was_free_has_nothing_to_replace():
    """Its next request reads nothing, as the first one, also where the pages of a prefix come from the tree."""
    pools = Pools(2, CONTEXT, 300, 300, 40)
    with ours() as fallbacks:
        pools.start(1)
        pools.extend([(1, 2 * GROUP)])
        pools.cache(1)
        for _ in range(2):
            pools.start(2, 0, GROUP)
            counted = NoReads()
            release = pools.allocator.release_c128_pages
            pools.allocator.release_c128_pages = counting(counted, release)
            pools.extend([(2, 3 * GROUP)])
            pools.allocator.release_c128_pages = release
            assert counted.launches == []
            pools.free(2)
    assert fallbacks == []


def counting(mode, function):
    def call(*args, **kwargs):
        with mode:
            return function(*args, **kwargs)

    return call


def known():
    pools = Pools(2, CONTEXT, 40, 40, 4)
    pools.start(1)
    pools.extend([(1, 100)])
    return pools


def call_of(pools, **changed):
    rows = dict(
        prefix_lens=torch.tensor([100]),
        prefix_lens_cpu=torch.tensor([100]),
        seq_lens=torch.tensor([200]),
        seq_lens_cpu=torch.tensor([200]),
        last_loc=pools.pool.req_to_token[1, 99:100].clone(),
        extend_num_tokens=100,
        req_pool_indices=torch.tensor([1]),
        req_to_token_pool=pools.pool,
    )
    return pools.allocator.alloc_extend(**(rows | changed))


UNEXPECTED = [
    (dict(req_pool_indices=None), "no req_pool_indices"),
    (dict(req_to_token_pool=None), "no req_pool_indices or req_to_token_pool"),
    (dict(extend_num_tokens=99), "num_tokens is 99, expected 100, the sum of the rows"),
    (dict(seq_lens_cpu=torch.tensor([99]), extend_num_tokens=-1), "expected no less than prefix_lens, which is 100"),
    (dict(prefix_lens_cpu=torch.tensor([100, 0])), "prefix_lens has shape [2], expected [1]"),
    (dict(prefix_lens=torch.tensor([100, 0])), "prefix_lens has shape [2], expected [1]"),
    (dict(req_pool_indices=torch.tensor([1, 1])), "2 rows of req_pool_indices, expected 1 as on the host"),
    (dict(prefix_lens_cpu=None), "lengths that are no vector on the host"),
    (dict(seq_lens=torch.tensor([200.0])), "seq_lens has dtype Float"),
    # A device does not look before it starts.
    pytest.param(
        dict(last_loc=torch.tensor([5])), "last_loc[0] is 5, expected the slot of token 99", marks=pytest.mark.cpu_only
    ),
]


@pytest.mark.parametrize("changed, reason", UNEXPECTED)
def test_what_is_not_known_is_sglangs_and_nothing_changed_before(monkeypatch, changed, reason):
    pools = known()
    before = pools.state()
    seen = []

    def original(self, *args, **kwargs):
        assert_same_state(before, pools.state())
        seen.append(True)
        return "theirs"

    monkeypatch.setattr(sgl.allocator.DSV4NPUTokenToKVPoolAllocator, "alloc_extend", original)
    with ours() as fallbacks:
        assert call_of(pools, **changed) == "theirs"
    assert seen == [True] and reason in fallbacks[0]


def claim_pages(part):
    part.free_pages = part.free_pages[:0]
    part.merge_and_sort_free = lambda: None
    part.available_size = lambda: 20 * PAGE


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda allocator: setattr(allocator, "_swa_req_ring", True), "a swa ring of the request"),
        (lambda allocator: setattr(allocator.swa_attn_allocator, "debug_mode", True), "SGLANG_DEBUG_MEMORY_POOL"),
        (lambda allocator: setattr(allocator.swa_attn_allocator, "page_size", 64), "kinds or page sizes"),
        (lambda allocator: claim_pages(allocator.full_attn_allocator), "fewer free pages than it says"),
    ],
)
def test_an_allocator_of_another_kind_is_sglangs(monkeypatch, change, reason):
    pools = known()
    change(pools.allocator)
    monkeypatch.setattr(sgl.allocator.DSV4NPUTokenToKVPoolAllocator, "alloc_extend", lambda self, **kwargs: "theirs")
    with ours() as fallbacks:
        assert call_of(pools) == "theirs"
    assert reason in fallbacks[0]


@pytest.mark.parametrize(
    "left_out", ["replace_req_c128_prefix", "free", "maybe_write_dsv4_extend", "maybe_write_dsv4_decode"]
)
def test_a_hook_that_is_refused_leaves_the_others_exact(left_out):
    """Without the writers of the sidecar in view, what new pages replace is always released, as SGLang does it."""
    pair = Pair(3, CONTEXT, 120, 120, 12)
    steps = [
        ("start", 1),
        ("extend", [(1, 3 * GROUP)]),
        ("cache", 1),
        ("start", 2, 0, GROUP, 3 * GROUP),
        ("extend", [(2, 2 * GROUP)]),
        ("free", 2),
        ("start", 2, 0, GROUP),
        ("extend", [(2, 2 * GROUP)]),
        ("start", 3),
        ("extend", [(3, GROUP), (2, 3 * GROUP)]),
    ]
    for name, *arguments in steps:
        getattr(pair.theirs, name)(*arguments)
        with ours(left_out):
            getattr(pair.ours, name)(*arguments)
        assert_same(pair.theirs, pair.ours)


def test_columns_in_use_are_read_when_they_are_first_asked_for():
    """As when the plug-in comes to pools that have been used."""
    pair = Pair(3, CONTEXT, 120, 120, 12)
    for pools in (pair.theirs, pair.ours):
        pools.start(1)
        pools.extend([(1, 3 * GROUP)])
        pools.cache(1)
        pools.start(2, 0, GROUP, matched=3 * GROUP)
    pair("extend", [(2, 3 * GROUP)])
    assert pair.ours.allocator.c128_page_refcount[1:6].tolist() == [3, 2, 2, 1, 1]

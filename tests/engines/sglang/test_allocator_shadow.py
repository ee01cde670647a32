"""Shadow runs of the allocator and its table writes: SGLang's own functions work, ours are compared on copies."""

import random
from types import SimpleNamespace

import pytest
import torch
from ascend_backend.replay import differences, repeat
from ascend_backend.replay import load as load_record

from dsv4_npu_ops.engines.settings import Mode
from dsv4_npu_ops.engines.sglang import allocator as replacements
from dsv4_npu_ops.engines.sglang import allocator_shadow, c128_pages
from engines.sglang.allocations import GROUP, PAGE, Pools, assert_same, assert_same_bundles, ours
from engines.sglang.test_allocator import CONTEXT, ROWS, Pair, random_step
from engines.sglang.world import sgl


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("DSV4_NPU_OPS_DUMP", str(tmp_path))
    return tmp_path


class Shadowed(Pair):
    """SGLang's own functions on both sides; on one with ours beside them."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.said = []

    def __call__(self, name, *arguments, **options):
        theirs = getattr(self.theirs, name)(*arguments, **options)
        with ours(mode=Mode.SHADOW) as said:
            shadowed = getattr(self.ours, name)(*arguments, **options)
        self.said += said
        if name in ("extend", "decode", "reserve"):
            assert_same_bundles(theirs, shadowed)
        assert_same(self.theirs, self.ours)
        return shadowed

    def allocate(self, name, *arguments, **options):
        return self(name, *arguments, **options)


@pytest.mark.parametrize("need_sort", [False, True])
@pytest.mark.parametrize("sizes", [(300, 300, 40), (60, 48, 9), (70, 70, 3)], ids=str)
def test_histories_change_nothing_and_find_nothing(monkeypatch, sizes, need_sort, folder):
    compare, compared = allocator_shadow.compare, []
    monkeypatch.setattr(allocator_shadow, "compare", lambda name, *rest: compared.append(name) or compare(name, *rest))
    draws = random.Random(f"{sizes} {need_sort}")
    pair = Shadowed(ROWS, CONTEXT, *sizes, need_sort=need_sort)
    for _ in range(50):
        random_step(pair, draws)
    assert pair.said == [] and not list(folder.iterdir())
    writes = sum("write" in name for name in compared)
    assert writes == len(compared) - writes > 5  # as many table writes as allocations


@pytest.mark.parametrize("need_sort", [False, True])
def test_tails_and_pages_that_are_replaced_find_nothing(need_sort):
    pair = Shadowed(3, CONTEXT, 120, 120, 12, need_sort=need_sort)
    pair("start", 1)
    pair("extend", [(1, 3 * GROUP)])
    pair("cache", 1)
    pair("start", 2, 0, GROUP, matched=3 * GROUP)
    pair("extend", [(2, 3 * GROUP)])
    pair("start", 3)
    pair("extend", [(3, 300)], 44)
    for pools in (pair.theirs, pair.ours):
        pools.requests[2].allocated = GROUP
    pair("extend", [(2, 2 * GROUP)])  # nobody else has the page that this gives back
    assert pair.said == []


def test_what_is_not_known_is_sglangs_and_said():
    pair = Shadowed(1, CONTEXT, 40, 40, 4)
    pair("start", 1)
    pair("extend", [(1, 300)], 50)
    assert len(pair.said) == 1 and "was not compared: a swa tail that does not start at a page" in pair.said[0]


def wrong(change):
    """Our launch, with a mistake in what it returns or writes."""
    launch = replacements._extend_from_lists

    def mistaken(*args):
        extended, *counts = launch(*args)
        results = [result.clone() for result in extended]
        change(SimpleNamespace(args=args, results=results))
        return results, *counts

    return mistaken


def add_one(tensor):
    tensor += 1


def first_owner_is_two(call):
    owners = call.args[9]
    owners[owners == 1] = 2


MISTAKES = [
    ("alloc_extend", "out_full_loc", lambda call: add_one(call.results[0])),
    ("alloc_extend", "out_swa_loc", lambda call: add_one(call.results[1][3:4])),
    ("alloc_extend", "out_c4_loc", lambda call: add_one(call.results[2][-1:])),
    ("alloc_extend", "out_c128_loc", lambda call: add_one(call.results[3])),
    ("alloc_extend", "mapping", lambda call: add_one(call.args[7][-1:])),
    ("maybe_write_dsv4_extend", "sidecar", lambda call: add_one(call.args[8][1, :1])),
    ("maybe_write_dsv4_extend", "owners", first_owner_is_two),
]


@pytest.mark.parametrize("function, field, change", MISTAKES)
def test_a_mistake_is_named_and_saved_and_changes_nothing(monkeypatch, folder, function, field, change):
    pair = Shadowed(2, CONTEXT, 60, 60, 8)
    pair("start", 1)
    monkeypatch.setattr(replacements, "_extend_from_lists", wrong(change))
    pair("extend", [(1, GROUP + 5)])
    assert [message.partition(";")[0] for message in pair.said] == [f"{function} differs from SGLang's in {field}"]
    # The launch can be repeated, and what SGLang had is beside it.
    record = load_record(next((folder / function).glob("*-extend_from_lists.pt")))
    assert not differences(record["after"], repeat(record))
    assert list(torch.load(folder / function / "sglang.pt")) == [field]


def test_lists_that_differ_are_named(monkeypatch):
    pair = Shadowed(1, CONTEXT, 60, 60, 8)
    pair("start", 1)
    four_less = wrong(lambda call: call.results.__setitem__(6, call.args[5][4:]))
    monkeypatch.setattr(replacements, "_extend_from_lists", four_less)
    pair("extend", [(1, 300)])
    assert len(pair.said) == 1 and "alloc_extend differs from SGLang's in free pages of swa;" in pair.said[0]


def test_one_that_finds_too_little_is_named(monkeypatch):
    pair = Shadowed(1, CONTEXT, 3, 3, 1)
    pair("start", 1)
    monkeypatch.setattr(replacements, "_extend_from_lists", lambda *args: ([], 0, 99, 0, 0, []))
    pair("extend", [(1, 200)])
    assert len(pair.said) == 1 and "alloc_extend differs from SGLang's in out_full_loc" in pair.said[0]


def test_a_table_write_of_sglang_that_does_something_else_is_named(monkeypatch):
    """SGLang's own is the one that is wrong here: it writes no page."""
    pools = Pools(1, CONTEXT, 60, 60, 8)
    pools.start(1)
    monkeypatch.setattr(sgl.hooks, "_write_per_req_slice", lambda *args, **kwargs: None)
    with ours(mode=Mode.SHADOW) as said:
        pools.extend([(1, GROUP)])
    assert len(said) == 1 and "maybe_write_dsv4_extend differs from SGLang's in sidecar, owners;" in said[0]
    assert pools.pool.req_to_c128_sidecar[1].tolist() == [0, 0, 0]


def test_pages_that_are_not_given_back_are_named(monkeypatch):
    pair = Shadowed(1, CONTEXT, 120, 120, 12)
    pair("start", 1)
    pair("extend", [(1, 3 * GROUP)])
    for pools in (pair.theirs, pair.ours):
        pools.requests[1].allocated = GROUP
    monkeypatch.setattr(c128_pages, "_release", lambda *args: None)
    pair("extend", [(1, 2 * GROUP)])
    assert len(pair.said) == 1
    assert "maybe_write_dsv4_extend differs from SGLang's in free pages of c128;" in pair.said[0]


def test_changes_between_an_allocation_and_its_table_write_are_not_compared():
    """Nothing of SGLang does so today; it would be its own business."""
    pools = Pools(2, CONTEXT, 120, 120, 12)
    pools.start(1)
    pools.start(2)
    write = sgl.hooks.maybe_write_dsv4_extend
    with ours(mode=Mode.SHADOW) as said:
        shadow = sgl.hooks.maybe_write_dsv4_extend

        def late(batch, *rest):
            sgl.hooks.maybe_write_dsv4_extend = write
            pages = pools.parts()[2].free_pages[:1]
            pools.parts()[2].free_pages = pools.parts()[2].free_pages[1:]
            pools.allocator.replace_req_c128_prefix(2, pages, pools.pool)
            shadow(batch, *rest)

        sgl.hooks.maybe_write_dsv4_extend = late
        pools.extend([(1, GROUP)])
    sgl.hooks.maybe_write_dsv4_extend = write
    assert said == []
    assert pools.pool.req_to_c128_sidecar[1:, 0].tolist() == [1, 2]


def test_a_bundle_that_is_written_twice_is_compared_once():
    pools = Pools(1, CONTEXT, 60, 60, 8)
    pools.start(1)
    with ours(mode=Mode.SHADOW) as said:
        bundle = pools.extend([(1, GROUP + PAGE)])
        batch = SimpleNamespace(out_cache_loc_dsv4=bundle, req_to_token_pool=pools.pool)
        sgl.hooks.maybe_write_dsv4_extend(batch, *(torch.tensor([n]) for n in (1, 0, GROUP + PAGE)))
    assert said == []

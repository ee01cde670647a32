"""Table writes behind an allocation, ours or SGLang's own (the histories of test_allocator.py write tables too)."""

from types import SimpleNamespace

import pytest
import torch

from engines.sglang.allocations import GROUP, Pools, assert_same, ours
from engines.sglang.world import sgl

ROWS, CONTEXT = 3, 3 * GROUP


def worlds():
    """Two requests; row 2 stands on a cached prefix, with more pages than it starts from."""
    pools = Pools(ROWS, CONTEXT, 150, 150, 12)
    pools.start(1)
    pools.extend([(1, 2 * GROUP)])
    pools.cache(1)
    pools.start(2, 0, GROUP, matched=2 * GROUP)
    return pools


def batch_of(pools, bundle, rows, **more):
    return SimpleNamespace(out_cache_loc_dsv4=bundle, req_to_token_pool=pools.pool, req_pool_indices=rows, **more)


def allocate(pools, row, start, end):
    """The allocation alone."""
    index, prefix, seq = torch.tensor([row]), torch.tensor([start]), torch.tensor([end])
    last = pools.pool.req_to_token[index, prefix - 1]
    return pools.allocator.alloc_extend(
        prefix, prefix, seq, seq, last, end - start, req_pool_indices=index, req_to_token_pool=pools.pool
    )


def write(pools, bundle, row, start, end):
    batch = batch_of(pools, bundle, torch.tensor([row]))
    sgl.hooks.maybe_write_dsv4_extend(batch, torch.tensor([row]), torch.tensor([start]), torch.tensor([end]))


@pytest.mark.parametrize("times", [1, 2, 3])
def test_written_again_nothing_changes(times):
    """As SGLang's own, which finds what it would write. What was replaced loses its owner once."""
    theirs, our = worlds(), worlds()
    for pools, context in ((theirs, None), (our, ours())):
        with context or pytest.MonkeyPatch.context():
            bundle = allocate(pools, 2, GROUP, 2 * GROUP + 300)
            for _ in range(times):
                write(pools, bundle, 2, GROUP, 2 * GROUP + 300)
    assert_same(theirs, our)
    assert our.allocator.c128_page_refcount[1:4].tolist() == [3, 2, 1]


def test_the_allocation_of_sglang_is_written_by_sglang():
    theirs, our = worlds(), worlds()
    for pools, context in ((theirs, None), (our, ours("alloc_extend"))):
        with context or pytest.MonkeyPatch.context():
            write(pools, allocate(pools, 2, GROUP, 2 * GROUP), 2, GROUP, 2 * GROUP)
    assert_same(theirs, our)


def test_the_lengths_of_the_allocation_count():
    """Its launch has written the pages, whatever the table writes are told."""
    theirs, our = worlds(), worlds()
    write(theirs, allocate(theirs, 2, GROUP, 2 * GROUP), 2, GROUP, 2 * GROUP)
    with ours():
        write(our, allocate(our, 2, GROUP, 2 * GROUP), 2, GROUP, GROUP + 100)
    assert_same(theirs, our)


def grow_to(pools, length):
    pools.start(3)
    pools.extend([(3, length)])


@pytest.mark.parametrize("on_host", [True, False])
def test_a_decode_that_starts_a_page(on_host):
    """Where the host does not have the rows either, they are read for the page alone."""
    theirs, our = worlds(), worlds()
    for pools, context in ((theirs, None), (our, ours())):
        with context or pytest.MonkeyPatch.context():
            grow_to(pools, 127)
            index, seq = torch.tensor([3]), torch.tensor([128])
            last = pools.pool.req_to_token[index, seq - 2]
            bundle = pools.allocator.alloc_decode(seq, seq, last, req_pool_indices=index, req_to_token_pool=pools.pool)
            more = {"req_pool_indices_cpu": index} if on_host else {}
            sgl.hooks.maybe_write_dsv4_decode(batch_of(pools, bundle, index, **more), seq, 1)
    assert_same(theirs, our)
    assert our.pool.req_to_c128_sidecar[3].tolist() == [3, 0, 0]


@pytest.mark.parametrize("bundle", [None, SimpleNamespace(out_c128_loc=torch.empty(0, dtype=torch.int64))])
def test_without_a_bundle_or_without_tables_nothing_happens(bundle):
    """Other models on the same paths."""
    for pool in (worlds().pool, SimpleNamespace()):
        with ours() as fallbacks:
            batch = SimpleNamespace(
                out_cache_loc_dsv4=bundle, req_to_token_pool=pool, req_pool_indices=torch.tensor([1])
            )
            lengths = torch.tensor([5])
            sgl.hooks.maybe_write_dsv4_extend(batch, torch.tensor([1]), lengths, lengths + 1)
            sgl.hooks.maybe_write_dsv4_decode(batch, lengths, 1)
            request = SimpleNamespace(kv=SimpleNamespace(req_pool_idx=1), req_pool_idx=1)
            sgl.hooks.write_dsv4_prealloc_tables(pool, request, 0, 5, bundle)
        assert fallbacks == []

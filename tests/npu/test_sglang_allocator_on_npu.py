"""SGLang's allocations by the plug-in on npu: one launch, nothing copied or waited for, and the CPU's values.

SGLang itself is not here: its pools are plain objects (tests/engines/sglang has the real ones).
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from npu.test_step_path import launches, one_step

PAGE, C128_PAGE, COLUMNS, PAGES = 128, 16, 3, 60
GROUP = C128_PAGE * 128
LENGTHS = {1: 2046, 2: 127, 4: 300}


class Bundle(SimpleNamespace):
    """Stands for DSV4OutCacheLoc."""

    def __init__(self, full, swa, c4, c128):
        super().__init__(full=full, swa=swa, c4=c4, c128=c128)


class Pool:
    """Stands for NPUPagedTokenToKVPoolAllocator."""

    debug_mode = False

    def __init__(self, page_size, device, seed):
        self.page_size = page_size
        pages = torch.randperm(PAGES, generator=torch.Generator().manual_seed(seed)) + 1
        self.free_pages = pages.to(device)

    def available_size(self):
        return len(self.free_pages) * self.page_size

    def merge_and_sort_free(self):
        raise AssertionError("there is room")


class Allocator:
    """Stands for DSV4NPUTokenToKVPoolAllocator."""

    page_size = PAGE

    def __init__(self, device):
        self.full_attn_allocator, self.swa_attn_allocator = Pool(PAGE, device, 1), Pool(PAGE, device, 2)
        self.c128_attn_allocator = Pool(C128_PAGE, device, 3)
        self.full_to_swa_index_mapping = torch.zeros((PAGES + 1) * PAGE + 1, dtype=torch.int64).to(device)
        self.c128_page_refcount = torch.zeros(PAGES + 1, dtype=torch.int32).to(device)
        self._empty_loc = torch.empty(0, dtype=torch.int64).to(device)

    def replace_req_c128_prefix(self, row, pages, pool):
        from dsv4_npu_ops.engines.sglang import c128_pages

        c128_pages.replace_req_c128_prefix(lambda *arguments: None, self, row, pages, pool)

    def release_c128_pages(self, pages):
        raise AssertionError("nothing is replaced")


@pytest.fixture
def plugin(ops, monkeypatch):
    from dsv4_npu_ops.engines.sglang import allocator, c128_pages, table_writes

    batch_info = ModuleType("sglang.srt.model_executor.forward_batch_info")
    batch_info.DSV4OutCacheLoc = Bundle
    monkeypatch.setitem(sys.modules, batch_info.__name__, batch_info)
    for parent in ("sglang", "sglang.srt", "sglang.srt.model_executor"):
        monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
    monkeypatch.setattr(c128_pages, "_table_writes_are_ours", lambda: True)
    return SimpleNamespace(allocator=allocator, table_writes=table_writes)


def world(plugin, device):
    """Requests of LENGTHS tokens."""
    pools = Allocator(device)
    sidecar = torch.zeros(6, COLUMNS, dtype=torch.int32).to(device)
    pool = SimpleNamespace(req_to_c128_sidecar=sidecar, c128_page_size=C128_PAGE, _dsv4_allocator=pools)
    held = SimpleNamespace(pools=pools, pool=pool, last={})
    call = calls(plugin, held, device, {row: (0, length) for row, length in LENGTHS.items()})
    bundle = call()
    ends = torch.tensor(list(LENGTHS.values())).cumsum(0) - 1
    held.last = dict(zip(LENGTHS, bundle.full.cpu()[ends].tolist(), strict=True))
    return held


def calls(plugin, held, device, growth, *, decode=False, tail=None):
    """An allocation with its table writes, as a function of nothing: what SGLang has on the device is made before."""
    rows, prefixes, ends = list(growth), [a for a, _ in growth.values()], [b for _, b in growth.values()]
    index, prefix, seq, last = (
        torch.tensor(values).to(device) for values in (rows, prefixes, ends, [held.last.get(row, -1) for row in rows])
    )
    prefix_cpu, seq_cpu, rows_cpu = torch.tensor(prefixes), torch.tensor(ends), torch.tensor(rows)
    tables = dict(req_pool_indices=index, req_to_token_pool=held.pool)
    total = sum(ends) - sum(prefixes)

    def call():
        if decode:
            bundle = plugin.allocator.alloc_decode(None, held.pools, seq, seq_cpu, last, **tables)
        elif tail is not None:
            lengths = (prefix, prefix_cpu, seq, seq_cpu, last, total, tail)
            bundle = plugin.allocator.alloc_extend_swa_tail(None, held.pools, *lengths, **tables)
        else:
            lengths = (prefix, prefix_cpu, seq, seq_cpu, last, total)
            bundle = plugin.allocator.alloc_extend(None, held.pools, *lengths, **tables)
        batch = SimpleNamespace(out_cache_loc_dsv4=bundle, req_pool_indices_cpu=rows_cpu, **tables)
        if decode:
            plugin.table_writes.maybe_write_dsv4_decode(None, batch, seq_cpu, 1)
        else:
            plugin.table_writes.maybe_write_dsv4_extend(None, batch, rows_cpu, prefix_cpu, seq_cpu)
        return bundle

    return call


GROWTH = {
    "chunk": (dict(growth={1: (2046, 2300), 2: (127, 130), 5: (0, 260)}), {"extend_from_lists": 1}),
    "decode": (dict(growth={row: (n, n + 1) for row, n in LENGTHS.items()}, decode=True), {"extend_from_lists": 1}),
    "reservation": (dict(growth={1: (2046, 2176), 2: (127, 128), 4: (300, 300)}), {"extend_from_lists": 1}),
    "nothing to reserve": (dict(growth={row: (n, n) for row, n in LENGTHS.items()}), {}),
    "tail": (dict(growth={5: (0, 2 * GROUP + 2)}, tail=130), {"extend_from_lists": 1}),
}


@pytest.mark.parametrize("name", GROWTH)
def test_an_allocation_is_one_launch_and_waits_for_nothing(sim, plugin, name):
    options, expected = GROWTH[name]
    results = {}
    for device in ("cpu", "npu"):
        held = world(plugin, device)
        call = calls(plugin, held, device, **options)
        if device == "cpu":
            bundle = call()
        else:
            with one_step(sim) as counted:
                bundle = call()
            assert launches(counted) == expected
            assert not [copied for copied in counted if copied.startswith("copy.")], counted
        pools = held.pools
        tables = (pools.full_to_swa_index_mapping, held.pool.req_to_c128_sidecar, pools.c128_page_refcount)
        lists = [pool.free_pages for pool in (pools.full_attn_allocator, pools.swa_attn_allocator)]
        results[device] = [
            tensor.cpu() for tensor in (bundle.full, bundle.swa, bundle.c4, bundle.c128, *tables, *lists)
        ]
    for given, wanted in zip(results["npu"], results["cpu"], strict=True):
        assert given.dtype == wanted.dtype and torch.equal(given, wanted)

"""RopeCache: one pair of tables for each freqs tensor and dtype, and never a build during capture."""

import copy
import gc
import pickle
import threading
import time
import weakref

import pytest
import torch

from dsv4_npu_ops import RopeCache, build_freqs_cis, build_rope_tables, graph_capture, rope_cache, rope_gather

CONFIG = dict(rope_theta=10000.0, compress_rope_theta=160000.0, qk_rope_head_dim=64)


def make_freqs(seed=0, rows=6, pairs=2):
    return torch.randn(rows, pairs, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed))


def assert_tables_of(got, freqs, dtype=torch.float32):
    for table, want in zip(got, build_rope_tables(freqs, dtype), strict=True):
        assert table.dtype == dtype and torch.equal(table, want)


def buffer_names(cache):
    return sorted(name for name, _ in cache.named_buffers())


def test_tables_are_built_once_per_tensor_and_dtype():
    cache, freqs = RopeCache(), make_freqs()
    first = cache.get(freqs, torch.float32)
    assert_tables_of(first, freqs)
    assert all(a is b for a, b in zip(first, cache.get(freqs, torch.float32), strict=True))
    assert_tables_of(cache.get(freqs, torch.bfloat16), freqs, torch.bfloat16)
    assert all(a is b for a, b in zip(first, cache.get(freqs, torch.float32), strict=True))
    assert len(buffer_names(cache)) == 4 and cache.state_dict() == {}


def test_two_bases_of_one_shape_on_one_owner():
    owner = torch.nn.Module()
    owner.rope = RopeCache()
    freqs = [build_freqs_cis(CONFIG, ratio, 4096) for ratio in (0, 4)]
    tables = [owner.rope.get(f, torch.float32) for f in freqs]
    assert tables[0][0].shape == tables[1][0].shape == (4096, 64)
    rows = []
    for f, base in zip(freqs, (10000.0, 160000.0), strict=True):
        cos, sin = owner.rope.get(f, torch.float32)
        for position in (5, 6):
            got_cos, got_sin = rope_gather(cos, sin, torch.tensor([position]))
            angles = torch.tensor([position * base ** (-pair / 32) for pair in range(32) for _ in range(2)])
            torch.testing.assert_close(got_cos[0], angles.cos(), rtol=0, atol=1e-5)
            torch.testing.assert_close(got_sin[0], angles.sin(), rtol=0, atol=1e-5)
            rows.append(got_cos)
    assert all(not torch.equal(a, b) for i, a in enumerate(rows) for b in rows[:i])


def test_an_entry_goes_with_its_tensor_and_its_id_is_not_trusted():
    cache = RopeCache()
    for seed in range(50):
        # Each tensor is dead before the next is made, which usually gets the same id and memory.
        freqs = make_freqs(seed)
        assert_tables_of(cache.get(freqs, torch.float32), freqs)
        assert len(buffer_names(cache)) == 2
        del freqs
        assert buffer_names(cache) == []


def test_equal_and_view_tensors_have_entries_of_their_own():
    cache, freqs = RopeCache(), make_freqs()
    twin, view = freqs.clone(), freqs[:]
    tables = [cache.get(f, torch.float32)[0] for f in (freqs, twin, view)]
    assert len({table.data_ptr() for table in tables}) == 3


def test_the_cache_does_not_keep_tensors_nor_tensors_the_cache():
    cache, freqs = RopeCache(), make_freqs()
    cache.get(freqs, torch.float32)
    cache_alive = weakref.ref(cache)
    del cache
    gc.collect()
    assert cache_alive() is None


@pytest.mark.parametrize("change", ["in place", "data", "resize"])
def test_a_changed_tensor_is_read_again(change):
    cache, freqs = RopeCache(), make_freqs()
    before = cache.get(freqs, torch.float32)
    addresses = [table.data_ptr() for table in before]
    if change == "in place":
        freqs.mul_(2)
    elif change == "data":
        freqs.data = make_freqs(1)
    else:
        freqs.resize_(3, 2)
    after = cache.get(freqs, torch.float32)
    assert_tables_of(after, freqs)
    assert len(buffer_names(cache)) == 2
    # Captured graphs hold addresses.
    assert change == "resize" or [table.data_ptr() for table in after] == addresses


def test_each_dtype_notices_a_change():
    cache, freqs = RopeCache(), make_freqs()
    for dtype in (torch.float32, torch.float16):
        cache.get(freqs, dtype)
    freqs.mul_(2)
    for dtype in (torch.float32, torch.float16):
        assert_tables_of(cache.get(freqs, dtype), freqs, dtype)


def test_capture_returns_known_tables_and_builds_none():
    cache, freqs = RopeCache(), make_freqs()
    with graph_capture(), pytest.raises(RuntimeError) as error:
        cache.get(freqs, torch.float32)
    assert str(error.value) == (
        "RopeCache.get: no torch.float32 tables for this freqs tensor [6, 2] during graph capture, "
        "expected a get() of it before the capture"
    )
    assert buffer_names(cache) == []
    known = cache.get(freqs, torch.float32)
    with graph_capture():
        assert cache.get(freqs, torch.float32)[0] is known[0]
        with pytest.raises(RuntimeError, match=r"no torch\.bfloat16 tables"):
            cache.get(freqs, torch.bfloat16)
        with pytest.raises(RuntimeError, match=r"no torch\.float32 tables"):
            cache.get(freqs.clone(), torch.float32)
    want = known[0].clone()
    freqs.mul_(2)
    with graph_capture(), pytest.raises(RuntimeError, match=r"outdated torch\.float32 tables"):
        cache.get(freqs, torch.float32)
    assert torch.equal(known[0], want)
    assert_tables_of(cache.get(freqs, torch.float32), freqs)


def test_capture_detection_can_be_injected():
    capturing = True
    cache = RopeCache(is_capturing=lambda: capturing)
    freqs = make_freqs()
    with pytest.raises(RuntimeError, match="during graph capture"):
        cache.get(freqs, torch.float32)
    capturing = False
    assert_tables_of(cache.get(freqs, torch.float32), freqs)


def test_the_backends_are_asked_whether_they_capture(monkeypatch):
    class Backend:
        capturing = True

        def is_initialized(self):
            return True

        def is_current_stream_capturing(self):
            return self.capturing

    backend = Backend()
    monkeypatch.setattr(torch, "npu", backend, raising=False)
    with pytest.raises(RuntimeError, match="during graph capture"):
        RopeCache().get(make_freqs(), torch.float32)
    backend.capturing = False
    freqs = make_freqs()
    assert_tables_of(RopeCache().get(freqs, torch.float32), freqs)


def test_tables_move_with_the_module_and_keep_their_dtype():
    owner = torch.nn.Module()
    owner.rope, freqs = RopeCache(), make_freqs()
    owner.rope.get(freqs, torch.float32)
    owner.to(torch.bfloat16)
    assert_tables_of(owner.rope.get(freqs, torch.float32), freqs)
    owner.to("meta", torch.float16)
    assert {(t.device.type, t.dtype) for t in owner.rope.get(freqs, torch.float32)} == {("meta", torch.float32)}


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_a_copy_starts_empty(duplicate):
    cache, freqs = RopeCache(), make_freqs()
    known = cache.get(freqs, torch.float32)
    twin = duplicate(cache)
    assert buffer_names(twin) == []
    assert_tables_of(twin.get(freqs, torch.float32), freqs)
    assert cache.get(freqs, torch.float32)[0] is known[0]
    assert twin.get(freqs, torch.float32)[0] is not known[0]


def test_inference_tensors():
    with torch.inference_mode():
        freqs = make_freqs()
        cache = RopeCache()
        known = cache.get(freqs, torch.float32)
    assert cache.get(freqs, torch.float32)[0] is known[0]
    freqs = make_freqs(1)
    with torch.inference_mode():
        cache.get(freqs, torch.float32)
    freqs.mul_(2)
    assert_tables_of(cache.get(freqs, torch.float32), freqs)


def test_bad_arguments_leave_no_entry():
    cache = RopeCache()
    with pytest.raises(ValueError, match="freqs_cis has dtype Float"):
        cache.get(torch.zeros(4, 2), torch.float32)
    with pytest.raises(ValueError, match="dtype is Double"):
        cache.get(make_freqs(), torch.float64)
    assert buffer_names(cache) == []


def test_threads_that_ask_at_once_get_the_same_tables(monkeypatch):
    cache, freqs, got = RopeCache(), [make_freqs(seed) for seed in range(2)], []

    def slow_build(*arguments, **named):
        time.sleep(0.02)  # the others arrive meanwhile
        return build_rope_tables(*arguments, **named)

    monkeypatch.setattr(rope_cache, "build_rope_tables", slow_build)
    threads = [
        threading.Thread(target=lambda i=i: got.append((i, cache.get(freqs[i], torch.float32)))) for i in (0, 1) * 3
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 6 and len(buffer_names(cache)) == 4
    for i, tables in got:
        assert_tables_of(tables, freqs[i])
        assert all(a is b for a, b in zip(tables, cache.get(freqs[i], torch.float32), strict=True))


def test_freqs_are_a_tensor():
    with pytest.raises(ValueError, match=r"RopeCache.get: freqs_cis is \[1\], expected a tensor"):
        RopeCache().get([1], torch.float32)

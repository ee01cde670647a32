"""A decode step and a verify step of the Python layer on npu: what they launch and copy, and that nothing waits."""

import contextlib
from dataclasses import dataclass
from typing import Any

import pytest
import torch

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
CONFIG = dict(rope_theta=10000.0, compress_rope_theta=160000.0, qk_rope_head_dim=8)
CONTEXT, WIDTH = 512, 4
LENGTHS = {0: 126, 2: 5, 3: 300}  # committed tokens by request


@contextlib.contextmanager
def one_step(sim):
    """Counts what is asked of the device meanwhile. It is lazy, so that it has run nothing unless somebody waited."""
    torch.npu.synchronize()
    sim.reset_counters()
    counted: dict[str, int] = {}
    yield counted
    torch.npu.current_stream().npu_stream  # noqa: B018  empties torch_npu's own queue into the stream
    counted.update(sim.counters())
    never = ("run.", "sync.", "operator.", "copy.d2h", "copy.d2d", "copy.h2h", "memset", "refused.")
    assert not [name for name in counted if name.startswith(never) or name == "malloc"], counted
    assert not [name for name in counted if name.startswith("copy.h2d.") and ".async" not in name], counted


def launches(counted):
    return {name.removeprefix("launch."): count for name, count in counted.items() if name.startswith("launch.")}


@dataclass
class Engine:
    """What an engine keeps: pools, tables, RoPE tables, and the buffers of a step."""

    d: Any  # the package, which must not be imported before the simulated device is there
    tables: Any
    alloc: Any
    freqs: dict[str, torch.Tensor]
    cache: Any
    device: str

    @classmethod
    def on(cls, d, device: str) -> "Engine":
        layout = d.KVLayout(16, 32, 4, CONTEXT, dict.fromkeys(POOLS, 80), device)
        tables = d.RequestTables(layout)
        freqs = {
            base: d.build_freqs_cis(CONFIG, ratio, CONTEXT, device=device)
            for base, ratio in (("main", 0), ("compress", 4))
        }
        engine = cls(d, tables, d.KVAllocator(layout, tables), freqs, d.RopeCache(), device)
        for base in freqs:
            engine.rope(base)
        engine.alloc.alloc_extend(list(LENGTHS), [0] * len(LENGTHS), list(LENGTHS.values()))
        return engine

    def rope(self, base: str) -> tuple[torch.Tensor, torch.Tensor]:
        return self.cache.get(self.freqs[base], torch.float32)

    def rows(self, *columns: list[int]) -> tuple[torch.Tensor, ...]:
        values = torch.tensor(columns, dtype=torch.int32, pin_memory=self.device != "cpu")
        return values.to(self.device, non_blocking=True).unbind()

    def gathers(self, positions: torch.Tensor) -> list[torch.Tensor]:
        return [rows for base in self.freqs for rows in self.d.rope_gather(*self.rope(base), positions)]

    def verify(self, out: Any) -> list[torch.Tensor]:
        """Reservation, metadata with slots and group rows, token rows."""
        requests, lengths = list(LENGTHS), list(LENGTHS.values())
        reserved = self.alloc.reserve_extend(requests, lengths, [length + WIDTH for length in lengths])
        step = self.d.build_verify_step(
            self.tables, *self.rows(requests, lengths), WIDTH, *self.rope("compress"), max_seq_len=CONTEXT, out=out
        )
        results = [*reserved.in_order(), *step.out_cache_loc.in_order(), *vars_of(step.metadata)]
        results += [step.c4_cos, step.c4_sin, step.c128_cos, step.c128_sin]
        return results + self.gathers(step.metadata.positions)

    def decode(self) -> list[torch.Tensor]:
        requests, lengths = list(LENGTHS), [length + 1 for length in LENGTHS.values()]
        slots = self.alloc.alloc_decode(requests, lengths)
        metadata = self.d.build_compress_metadata_decode(
            self.tables, *self.rows(requests, lengths), max_seq_len=max(lengths)
        )
        return [*slots.in_order(), *vars_of(metadata), *self.gathers(metadata.positions)]


def vars_of(metadata: Any) -> list[torch.Tensor]:
    return [getattr(metadata, name) for name in metadata.__dataclass_fields__]


@pytest.fixture
def engines(ops):
    """The same state on the device and on the CPU. A step has run, so that the allocator of torch_npu has memory."""
    pair = Engine.on(ops, "npu"), Engine.on(ops, "cpu")
    for engine in pair:
        backup = engine.alloc.backup_state()
        engine.verify(None)
        engine.decode()
        engine.alloc.restore_state(backup)
    return pair


def assert_same(got, want):
    assert len(got) == len(want)
    assert all(torch.equal(ours.cpu(), theirs) for ours, theirs in zip(got, want, strict=True))


@pytest.mark.parametrize("form", ["allocating", "out"])
def test_a_verify_step(sim, engines, form):
    on_npu, on_cpu = engines

    def out(engine):
        return (
            engine.d.VerifyStep.empty(engine.tables.layout, len(LENGTHS), len(LENGTHS) * WIDTH, 8)
            if form == "out"
            else None
        )

    buffers = out(on_npu)
    with one_step(sim) as counted:
        got = on_npu.verify(buffers)
    assert launches(counted) == {"reserve_extend": 1, "fill_uniform_step": 1, "rope_gather": 2}
    assert counted["copy.h2d.async"] == 2  # the reservation's segments; the rows and lengths
    assert counted["copy.h2d.async.bytes"] < 4096
    assert_same(got, on_cpu.verify(out(on_cpu)))


def test_a_decode_step(sim, engines):
    on_npu, on_cpu = engines
    with one_step(sim) as counted:
        got = on_npu.decode()
    assert launches(counted) == {"reserve_extend": 1, "fill_uniform_step": 1, "rope_gather": 2}
    assert counted["copy.h2d.async"] == 2
    assert_same(got, on_cpu.decode())


@pytest.mark.parametrize("call", ["evict", "free", "restore"])
def test_releasing_pages(sim, engines, call):
    on_npu, on_cpu = engines
    for engine in engines:
        engine.backup = engine.alloc.backup_state()
        engine.verify(None)

    def release(engine):
        if call == "evict":
            engine.alloc.evict(list(LENGTHS), [length + 1 for length in LENGTHS.values()])
        elif call == "free":
            engine.alloc.free([3, 0])
        else:
            engine.alloc.restore_state(engine.backup)

    with one_step(sim) as counted:
        release(on_npu)
    assert launches(counted) == {"release_pages": 1}
    assert counted["copy.h2d.async"] == 1
    release(on_cpu)
    assert_same(on_npu.tables.op_tables, on_cpu.tables.op_tables)

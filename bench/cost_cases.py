"""One launch of each op at the shapes of a large step, with what it must move through global memory at least."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from bench_reserve_extend import make_allocator
from op_arguments import OpArguments
from torch import Tensor
from torch_step import POOLS, committed_lengths, filled_tables

import dsv4_npu_ops
from dsv4_npu_ops import CompressMetadata, OutCacheLoc, VerifyStep

CONTEXT, WIDTH, ROPE_DIM = 8192, 4, 64


@dataclass(frozen=True)
class Moved:
    """What a launch did and had to do.

    ``outputs`` are compared between kernels. ``read_bytes`` and ``written_bytes`` count every input and output element
    once; ``row_bytes`` are the inputs with a value a row, which each block reads for itself and which ``read_bytes``
    leaves out. ``elements`` are the output elements.
    """

    outputs: Sequence[Tensor]
    read_bytes: int
    written_bytes: int
    row_bytes: int
    elements: int


@dataclass(frozen=True)
class CostCase:
    """A launch that is ready to run; ``rows`` is B, or 0 for an op whose work does not come by request."""

    op: str
    shape: str
    rows: int
    run: Callable[[], Moved]


def _nbytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _elements(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _fields(group: object) -> list[Tensor]:
    return [getattr(group, field.name) for field in dataclasses.fields(group)]


def _named_pages(metadata: CompressMetadata) -> int:
    """Page table entries that come from a request table; the tables here have no holes."""
    named = sum(int((getattr(metadata, f"{pool}_page_table") > 0).sum()) for pool in ("swa", "c4", "c128"))
    return named + sum(int((getattr(metadata, f"{pool}_state_page_table") != 0).sum()) for pool in ("c4", "c128"))


def _groups(starts: Tensor, ends: Tensor) -> tuple[int, int]:
    """Completed groups of ratio 4 and 128."""
    return int((ends // 4 - starts // 4).sum()), int((ends // 128 - starts // 128).sum())


def _moved(outputs: list[Tensor], read_entries: int, rows: Sequence[Tensor]) -> Moved:
    return Moved(outputs, 4 * read_entries, _nbytes(outputs), _nbytes(rows), _elements(outputs))


def compress_metadata(rows: int, form: str, tokens: int) -> CostCase:
    tables = filled_tables(rows, CONTEXT)
    requests, starts = committed_lengths(rows, CONTEXT - tokens)
    ends = starts + tokens
    out = CompressMetadata.empty(tables.layout, rows, rows * tokens)

    def run() -> Moved:
        if form == "verify":
            dsv4_npu_ops.build_compress_metadata_verify(tables, requests, starts, tokens, out=out)
        elif form == "decode":
            dsv4_npu_ops.build_compress_metadata_decode(tables, requests, ends, out=out)
        else:
            dsv4_npu_ops.build_compress_metadata_prefill(tables, requests, starts, ends, out=out)
        inputs = (requests, starts, ends) if form == "prefill" else (requests, starts)
        return _moved(_fields(out), _named_pages(out) + sum(_groups(starts, ends)), inputs)

    return CostCase("compress_metadata", f"{form} B={rows} n={tokens}", rows, run)


def verify_bundle(rows: int) -> CostCase:
    tables = filled_tables(rows, CONTEXT)
    requests, starts = committed_lengths(rows, CONTEXT - WIDTH)
    ends = starts + WIDTH

    def run() -> Moved:
        loc = dsv4_npu_ops.flatten_verify_bundle(tables, requests, starts, WIDTH, num_tokens=rows * WIDTH)
        read_entries = 4 * rows * WIDTH + sum(_groups(starts, ends))
        return _moved(loc.in_order(), read_entries, (requests, starts))

    return CostCase("verify_bundle", f"B={rows} n={WIDTH}", rows, run)


def verify_step(rows: int) -> CostCase:
    tables = filled_tables(rows, CONTEXT)
    requests, starts = committed_lengths(rows, CONTEXT - WIDTH)
    ends = starts + WIDTH
    cos, sin = torch.randn(CONTEXT, ROPE_DIM), torch.randn(CONTEXT, ROPE_DIM)
    out = VerifyStep.empty(tables.layout, rows, rows * WIDTH, ROPE_DIM)

    def run() -> Moved:
        dsv4_npu_ops.build_verify_step(tables, requests, starts, WIDTH, cos, sin, out=out)
        groups = sum(_groups(starts, ends))
        # The groups' slots are outputs of the bundle and of the metadata, and read for each. A tail repeats row 0.
        read_entries = 4 * rows * WIDTH + 2 * groups + _named_pages(out.metadata) + 2 * ROPE_DIM * (groups + 2)
        rope = [out.c4_cos, out.c4_sin, out.c128_cos, out.c128_sin]
        return _moved([*out.out_cache_loc.in_order(), *_fields(out.metadata), *rope], read_entries, (requests, starts))

    return CostCase("verify_step", f"B={rows} n={WIDTH} D={ROPE_DIM}", rows, run)


def _grown(rows: int, length: int, reserve: int) -> dsv4_npu_ops.KVAllocator:
    alloc = make_allocator(rows, length + reserve)
    alloc.alloc_extend(list(range(rows)), [0] * rows, [length] * rows)
    return alloc


def reserve_extend(rows: int, length: int, tokens: int, form: str) -> CostCase:
    alloc = _grown(rows, length, tokens) if length else make_allocator(rows, tokens)

    def run() -> Moved:
        requests, prefixes, ends = list(range(rows)), [length] * rows, [length + tokens] * rows
        with OpArguments("dsv4_npu_ops::reserve_extend") as op:
            extend = alloc.alloc_extend if form == "prefill" else alloc.reserve_extend
            loc = extend(requests, prefixes, ends)
        segments = op.arguments[7]
        begin, end, source = segments[:, 2], segments[:, 3], segments[:, 4]
        units, pages = end - begin, (end + 127) // 128 - begin // 128
        kept, joined, taken = (int((units * (source == s)).sum()) for s in range(3))
        entries = kept + int((source == 1).sum()) + int((pages * (source == 2)).sum())
        outputs = [*loc.in_order(), *alloc.tables.in_order()]
        written = _nbytes(loc.in_order()) + 4 * (joined + taken)
        return Moved(outputs, segments.nbytes + 4 * entries, written, 0, kept + 2 * (joined + taken))

    return CostCase("reserve_extend", f"{form} B={rows} L={length} n={tokens}", rows, run)


def release_pages(rows: int, length: int, form: str) -> CostCase:
    alloc = _grown(rows, length, 4096 if form == "evict" else 0)
    requests = list(range(rows))
    if form == "evict":
        alloc.reserve_extend(requests, [length] * rows, [length + 4096] * rows)

    def run() -> Moved:
        with OpArguments("dsv4_npu_ops::release_pages") as op:
            if form == "evict":
                alloc.evict(requests, [length + 4000] * rows)
            else:
                alloc.free(requests)
        segments = op.arguments[7]
        begin, end = segments[:, 2], segments[:, 3]
        units = int((end - begin).sum())
        pages = int(((end + 127) // 128 - begin // 128)[segments[:, 4] >= 0].sum())
        outputs = [*alloc.tables.in_order(), op.arguments[6]]
        return Moved(outputs, segments.nbytes + 4 * pages, 4 * (units + pages), 0, units + pages)

    return CostCase("release_pages", f"{form} B={rows} L={length}", rows, run)


def write_req_tables(rows: int, context: int, tokens: int) -> CostCase:
    tables = filled_tables(rows, context)
    requests, starts = committed_lengths(rows, context - tokens)
    ends = starts + tokens
    units = dict.fromkeys(POOLS, rows * tokens) | dict(zip(("c4", "c128"), _groups(starts, ends), strict=True))
    loc = OutCacheLoc(*(torch.arange(1, units[pool] + 1, dtype=torch.int32) for pool in POOLS))

    def run() -> Moved:
        dsv4_npu_ops.write_req_tables(tables, requests, starts, ends, loc)
        slots = _nbytes(loc.in_order())
        return Moved(tables.in_order(), slots, slots, _nbytes((requests, starts, ends)), slots // 4)

    return CostCase("write_req_tables", f"B={rows} n={tokens}", rows, run)


def rope_gather(tokens: int, order: str) -> CostCase:
    max_pos = 65536
    cos, sin = torch.randn(max_pos, ROPE_DIM), torch.randn(max_pos, ROPE_DIM)
    positions = torch.randperm(max_pos)[:tokens] if order == "scattered" else torch.arange(tokens)
    out = (torch.empty(tokens, ROPE_DIM), torch.empty(tokens, ROPE_DIM))

    def run() -> Moved:
        dsv4_npu_ops.rope_gather(cos, sin, positions, out=out)
        return Moved(out, positions.nbytes + _nbytes(out), _nbytes(out), 0, _elements(out))

    return CostCase("rope_gather", f"T={tokens} D={ROPE_DIM} {order}", 0, run)


def rope_tables(max_pos: int) -> CostCase:
    freqs = torch.polar(torch.ones(max_pos, ROPE_DIM // 2), torch.rand(max_pos, ROPE_DIM // 2))

    def run() -> Moved:
        tables = dsv4_npu_ops.build_rope_tables(freqs, torch.float32)
        return Moved(tables, freqs.nbytes, _nbytes(tables), 0, _elements(tables))

    return CostCase("rope_tables", f"{max_pos} positions D={ROPE_DIM}", 0, run)


def apply_rotary(tokens: int) -> CostCase:
    heads, head_dim = 64, 512
    q = torch.randn(tokens, heads, head_dim).bfloat16()
    kv = torch.randn(tokens, 1, head_dim).bfloat16()
    angles = torch.rand(tokens, ROPE_DIM // 2).repeat_interleave(2, -1)
    cos, sin = angles.cos(), angles.sin()

    def run() -> Moved:
        dsv4_npu_ops.apply_rotary(q, kv, cos, sin)
        elements = tokens * (heads + 1) * ROPE_DIM
        return Moved((q, kv), 2 * elements + _nbytes((cos, sin)), 2 * elements, 0, elements)

    return CostCase("apply_rotary", f"T={tokens} H={heads} D={ROPE_DIM} bfloat16", 0, run)


def compressor_metadata(rows: int, tokens: int, ratio: int) -> CostCase:
    max_pos, block_size = 16384, 128
    cos, sin = torch.randn(max_pos, ROPE_DIM), torch.randn(max_pos, ROPE_DIM)
    cu_seqlens = torch.arange(rows + 1, dtype=torch.int32) * tokens
    generator = torch.Generator().manual_seed(rows)
    starts = torch.randint(0, CONTEXT, (rows,), dtype=torch.int32, generator=generator)
    blocks = torch.randint(0, 4096, (rows, 32), dtype=torch.int32, generator=generator)
    capacity = min(rows * tokens, rows * tokens // ratio + rows)

    def run() -> Moved:
        out = dsv4_npu_ops.compressor_metadata(
            cos, sin, cu_seqlens, starts, blocks, block_size, 1, ratio, capacity, rows
        )
        first, last = starts // ratio, (starts + tokens) // ratio
        groups = int((last - first).sum())
        touched = int(torch.where(last > first, (last - 1) // block_size - first // block_size + 1, 0).sum())
        return _moved(list(out), touched + 2 * ROPE_DIM * groups, (cu_seqlens, starts))

    return CostCase("compressor_metadata", f"r={ratio} B={rows} n={tokens}", rows, run)


LARGE: list[tuple[Callable[..., CostCase], tuple[Any, ...]]] = [
    *((compress_metadata, (rows, "verify", WIDTH)) for rows in (64, 1024)),
    (compress_metadata, (64, "decode", 1)),
    (compress_metadata, (32, "prefill", 1024)),
    *((verify_bundle, (rows,)) for rows in (64, 1024)),
    *((verify_step, (rows,)) for rows in (64, 1024)),
    (reserve_extend, (64, 8192, WIDTH, "verify")),
    (reserve_extend, (1024, 1024, WIDTH, "verify")),
    (reserve_extend, (32, 0, 1024, "prefill")),
    (release_pages, (64, 1024, "evict")),
    (release_pages, (64, 8192, "free")),
    (release_pages, (1024, 1024, "free")),
    (write_req_tables, (64, 8192, WIDTH)),
    (write_req_tables, (1024, 1024, WIDTH)),
    (write_req_tables, (32, 2048, 1024)),
    (rope_gather, (4096, "scattered")),
    (rope_gather, (16384, "sequential")),
    (rope_tables, (16384,)),
    (apply_rotary, (256,)),
    *((compressor_metadata, (b, n, ratio)) for b, n in ((64, WIDTH), (1024, WIDTH), (32, 1024)) for ratio in (4, 128)),
]
"""Steps of 64 and 1024 requests with a context of 8192 where it matters, prefills of 32, RoPE of many tokens."""

SMALL: list[tuple[Callable[..., CostCase], tuple[Any, ...]]] = [
    (compress_metadata, (5, "verify", WIDTH)),
    (compress_metadata, (3, "prefill", 300)),
    (verify_bundle, (5,)),
    (verify_step, (5,)),
    (reserve_extend, (3, 500, WIDTH, "verify")),
    (reserve_extend, (3, 0, 700, "prefill")),
    (release_pages, (3, 900, "free")),
    (write_req_tables, (5, 512, WIDTH)),
    (rope_gather, (50, "scattered")),
    (rope_tables, (40,)),
    (apply_rotary, (3,)),
    (compressor_metadata, (5, 40, 4)),
]
"""Every op, small: for comparing kernels."""


def cases(small: bool, ops: Iterable[str] = ()) -> Iterator[CostCase]:
    """The cases of the chosen ops, or of all. Each draws the same inputs wherever it is made."""
    wanted = set(ops)
    for build, arguments in SMALL if small else LARGE:
        if not wanted or build.__name__ in wanted:
            torch.manual_seed(0)
            yield build(*arguments)

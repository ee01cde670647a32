"""Cost cases of the ops that describe a step."""

import torch
from moved import (
    CONTEXT,
    ROPE_DIM,
    WIDTH,
    CostCase,
    Moved,
    completed_groups,
    moved_entries,
    nbytes,
    num_elements,
    tensors_of,
)
from torch import Tensor
from torch_step import as_slots, committed_lengths, filled_tables

import dsv4_npu_ops
from dsv4_npu_ops import AdvancedStep, CompressorMetadata, DraftSteps, RequestTables, Step, StepRows, VerifyStep
from dsv4_npu_ops.layout import POOLS, RAW_TOKENS_PER_SLOT
from dsv4_npu_ops.ops.compress_metadata import METADATA_FIELDS
from dsv4_npu_ops.ops.verify_bundle import SLOT_FIELDS

TOKEN_ROPE = ("main_cos", "main_sin", "compress_cos", "compress_sin")
STEPS = {
    "metadata": tuple(METADATA_FIELDS),
    "slots": SLOT_FIELDS,
    "all": tuple(
        dict.fromkeys((*SLOT_FIELDS, *METADATA_FIELDS, "c4_cos", "c4_sin", "c128_cos", "c128_sin", *TOKEN_ROPE))
    ),
}
"""Fields of a step that a case asks for."""


def step(rows: int, part: str, form: str, tokens: int, context: int = CONTEXT, kind: str = "pages") -> CostCase:
    """part: of the fields, among STEPS; form: verify, decode or prefill; kind: of tables, pages or slots."""
    tables = filled_tables(rows, context)
    if kind == "slots":
        tables = as_slots(tables)
    requests, starts = committed_lengths(rows, context - tokens)
    ends = starts + tokens
    described = {
        "verify": lambda: StepRows.verify(starts, tokens),
        "decode": lambda: StepRows.final(ends),
        "prefill": lambda: StepRows.prefill(starts, ends),
    }[form]()
    rope = torch.arange(context * ROPE_DIM, dtype=torch.float32).view(context, ROPE_DIM)
    bases = dict(main_rope=(rope, rope), compress_rope=(rope, rope))
    buffers = VerifyStep.empty(tables, rows, rows * tokens, ROPE_DIM, **bases)
    sources = (buffers, buffers.metadata, buffers.out_cache_loc)
    out = Step(**{
        name: next(getattr(source, name) for source in sources if hasattr(source, name)) for name in STEPS[part]
    })  # fmt: skip

    def run() -> Moved:
        groups = dict(rope_cos=rope, rope_sin=rope)
        dsv4_npu_ops.build_step(tables, described, out, req_pool_indices=requests, **groups, **bases)
        outputs = [tensor for tensor in tensors_of(out) if tensor is not None]
        # The pages of a step's tokens and groups are among those that its page tables name. A tail of RoPE rows repeats
        # the row of position 0.
        named = {pool for pool in POOLS if getattr(out, f"{pool}_page_table") is not None}
        slots = {pool for pool in POOLS if getattr(out, f"out_{pool}_loc") is not None}
        entries = sum(_named_pages(out, pool) for pool in named)
        entries += sum(_touched_pages(tables, pool, starts, ends) for pool in slots - named)
        if out.c4_cos is not None:
            entries += 2 * ROPE_DIM * (sum(completed_groups(starts, ends)) + 2)
        if out.main_cos is not None:
            entries += 4 * ROPE_DIM * int((ends - starts).sum())
        inputs = (requests, starts, ends) if form == "prefill" else (requests, starts)
        return moved_entries(outputs, entries, inputs)

    return CostCase("step", f"{part}, {form} B={rows} n={tokens} context={context}", rows, run)


def _named_pages(out: Step, pool: str) -> int:
    """Page table entries that come from a request table; the tables here have no holes."""
    return int((getattr(out, f"{pool}_page_table") > 0).sum())


def _touched_pages(tables: RequestTables, pool: str, starts: Tensor, ends: Tensor) -> int:
    """Entries of the request table that say where the new units of each row go."""
    page_size, unit = tables.page_size_of(pool), RAW_TOKENS_PER_SLOT[pool]
    begin, end = starts // unit, ends // unit
    return int(((end + page_size - 1) // page_size - begin // page_size)[end > begin].sum())


def compressor_metadata(rows: int, tokens: int, ratio: int) -> CostCase:
    max_pos, block_size = 16384, 128
    cos, sin = torch.randn(max_pos, ROPE_DIM), torch.randn(max_pos, ROPE_DIM)
    cu_seqlens = torch.arange(rows + 1, dtype=torch.int32) * tokens
    generator = torch.Generator().manual_seed(rows)
    starts = torch.randint(0, CONTEXT, (rows,), dtype=torch.int32, generator=generator)
    blocks = torch.randint(0, 4096, (rows, 32), dtype=torch.int32, generator=generator)
    capacity = min(rows * tokens, rows * tokens // ratio + rows)
    out = CompressorMetadata.empty(capacity, ROPE_DIM, wanted=("cos", "sin", "slot_mapping"))

    def run() -> Moved:
        dsv4_npu_ops.compressor_metadata(
            cos, sin, cu_seqlens, starts, blocks, block_size, 1, ratio, capacity, rows, out=out
        )
        first, last = starts // ratio, (starts + tokens) // ratio
        groups = int((last - first).sum())
        touched = int(torch.where(last > first, (last - 1) // block_size - first // block_size + 1, 0).sum())
        outputs = [tensor for tensor in tensors_of(out) if tensor is not None]
        return moved_entries(outputs, touched + 2 * ROPE_DIM * groups, (cu_seqlens, starts))

    return CostCase("compressor_metadata", f"r={ratio} B={rows} n={tokens}", rows, run)


def advance_step(rows: int, hidden: int) -> CostCase:
    """hidden: bfloat16 elements of a token's hidden states; 0 for none."""
    tables = filled_tables(rows, CONTEXT)
    requests, lengths = committed_lengths(rows, CONTEXT - 2 * WIDTH)
    accepted, tokens = torch.randint(1, WIDTH + 1, (rows,)), torch.randint(0, 1 << 17, (rows * WIDTH,))
    states = torch.randn(rows * WIDTH, hidden).bfloat16() if hidden else None
    out = AdvancedStep.empty(
        tables.layout, rows, seq_lens=torch.empty_like(lengths), hidden_shape=(hidden,) if hidden else None
    )

    def run() -> Moved:
        dsv4_npu_ops.advance_step(
            tables, requests, lengths, accepted, tokens, num_draft_tokens=WIDTH, hidden_states=states, out=out
        )
        outputs = [tensor for tensor in tensors_of(out) if tensor is not None]
        # A token, its hidden states and two page ids a row. Blocks read the inputs of their own rows only.
        read = nbytes((requests, lengths, accepted)) + rows * (tokens.element_size() + 2 * hidden + 2 * 4)
        return Moved(outputs, read, nbytes(outputs), 0, num_elements(outputs))

    return CostCase("advance_step", f"B={rows} n={WIDTH} hidden={hidden}", rows, run)


def draft_steps(rows: int, topk: int, steps: int, source: str) -> CostCase:
    """source: table or reservation."""
    tables = filled_tables(rows, CONTEXT)
    requests, lengths = committed_lengths(rows, CONTEXT - steps)
    cos, sin = torch.randn(CONTEXT, ROPE_DIM), torch.randn(CONTEXT, ROPE_DIM)
    reservation = torch.randint(128, 1 << 20, (rows * topk * steps,), dtype=torch.int32)
    reserved = source == "reservation"
    out = DraftSteps.empty(steps, rows * topk, ROPE_DIM)

    def run() -> Moved:
        dsv4_npu_ops.build_draft_steps(
            lengths,
            cos,
            sin,
            steps,
            topk=topk,
            reservation=reservation if reserved else None,
            tables=tables,
            req_pool_indices=requests,
            out=out,
        )
        # The drafts of a request that are at one position share the RoPE rows. Blocks read their own requests only.
        read = nbytes([lengths, reservation] if reserved else [requests, lengths]) + (0 if reserved else 4 * rows)
        rope = 2 * 4 * ROPE_DIM * rows * steps
        return Moved(tensors_of(out), read + rope, nbytes(tensors_of(out)), 0, num_elements(tensors_of(out)))

    return CostCase("draft_steps", f"{source} B={rows} topk={topk} steps={steps} D={ROPE_DIM}", rows, run)


def draft_steps_apart(rows: int, steps: int) -> CostCase:
    """Into buffers of each step, as a captured graph of an engine's reads them: pairs, offsets, rows of two bases."""
    rope = [torch.randn(CONTEXT, ROPE_DIM) for _ in range(4)]
    blocks = torch.randint(1, 1 << 15, (rows, CONTEXT // 128), dtype=torch.int32)
    _, lengths = committed_lengths(rows, CONTEXT - steps)
    last, seq_lens = (lengths - 1).int(), lengths.int()

    def of_steps(*shape: int, dtype: torch.dtype = torch.int32, count: int = steps) -> list[torch.Tensor]:
        return [torch.empty(shape, dtype=dtype) for _ in range(count)]

    places = of_steps(rows, 2), of_steps(rows), of_steps(rows + 1)
    out = *places, of_steps(rows, ROPE_DIM, dtype=torch.float32, count=4 * steps)
    tensors = [tensor for of_all in out for tensor in of_all]

    def run() -> Moved:
        torch.ops.dsv4_npu_ops.draft_steps.apart(blocks, last, seq_lens, rope, 128, CONTEXT, -1, *out)
        # A block id a request.
        read = nbytes([last, seq_lens]) + 4 * rows + 4 * 4 * ROPE_DIM * rows * steps
        return Moved(tensors, read, nbytes(tensors), 0, num_elements(tensors))

    return CostCase("draft_steps_apart", f"B={rows} steps={steps} D={ROPE_DIM}", rows, run)

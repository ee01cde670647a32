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
from torch_step import committed_lengths, filled_tables

import dsv4_npu_ops
from dsv4_npu_ops import AdvancedStep, CompressMetadata, CompressorMetadata, DraftSteps, VerifyStep


def _named_pages(metadata: CompressMetadata) -> int:
    """Page table entries that come from a request table; the tables here have no holes."""
    named = sum(int((getattr(metadata, f"{pool}_page_table") > 0).sum()) for pool in ("swa", "c4", "c128"))
    return named + sum(int((getattr(metadata, f"{pool}_state_page_table") != 0).sum()) for pool in ("c4", "c128"))


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
        return moved_entries(tensors_of(out), _named_pages(out) + sum(completed_groups(starts, ends)), inputs)

    return CostCase("compress_metadata", f"{form} B={rows} n={tokens}", rows, run)


def verify_bundle(rows: int) -> CostCase:
    tables = filled_tables(rows, CONTEXT)
    requests, starts = committed_lengths(rows, CONTEXT - WIDTH)
    ends = starts + WIDTH

    def run() -> Moved:
        loc = dsv4_npu_ops.flatten_verify_bundle(tables, requests, starts, WIDTH, num_tokens=rows * WIDTH)
        read_entries = 4 * rows * WIDTH + sum(completed_groups(starts, ends))
        return moved_entries(loc.in_order(), read_entries, (requests, starts))

    return CostCase("verify_bundle", f"B={rows} n={WIDTH}", rows, run)


def verify_step(rows: int) -> CostCase:
    tables = filled_tables(rows, CONTEXT)
    requests, starts = committed_lengths(rows, CONTEXT - WIDTH)
    ends = starts + WIDTH
    cos, sin = torch.randn(CONTEXT, ROPE_DIM), torch.randn(CONTEXT, ROPE_DIM)
    out = VerifyStep.empty(tables.layout, rows, rows * WIDTH, ROPE_DIM)

    def run() -> Moved:
        dsv4_npu_ops.build_verify_step(tables, requests, starts, WIDTH, cos, sin, out=out)
        groups = sum(completed_groups(starts, ends))
        # The groups' slots are outputs of the bundle and of the metadata, and read for each. A tail repeats row 0.
        read_entries = 4 * rows * WIDTH + 2 * groups + _named_pages(out.metadata) + 2 * ROPE_DIM * (groups + 2)
        rope = [out.c4_cos, out.c4_sin, out.c128_cos, out.c128_sin]
        return moved_entries(
            [*out.out_cache_loc.in_order(), *tensors_of(out.metadata), *rope], read_entries, (requests, starts)
        )

    return CostCase("verify_step", f"B={rows} n={WIDTH} D={ROPE_DIM}", rows, run)


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

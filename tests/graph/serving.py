"""Filled tables, random batches and what a replay must leave, for tests of captured graphs on any device."""

import dataclasses

import torch
from hypothesis import strategies as st

from dsv4_npu_ops import KVLayout, RequestTables, VerifyStep, build_verify_step, rope_gather

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
REQUESTS = 9
CONTEXT = 400
ROPE_DIM = 4


def filled_tables(device="cpu", pools=POOLS):
    """Tables that hold some page everywhere, the same on every device."""
    tables = RequestTables(KVLayout(16, 40, REQUESTS, CONTEXT, dict.fromkeys(pools, 64), device=device))
    generator = torch.Generator().manual_seed(3)
    for pool in pools:
        table = tables.table(pool)
        table.copy_(torch.randint(1, 65, table.shape, generator=generator, dtype=torch.int32))
    return tables


def rope_tables(seed, dim=ROPE_DIM, dtype=torch.float32):
    """Longer than the context, as an engine's may be: drafts end with the context, not with the table."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(CONTEXT + 8, dim, generator=generator).to(dtype) for _ in range(2)]


@st.composite
def batches(draw, num_rows, width, ragged):
    """(request indices, committed lengths, widths) of up to num_rows rows, idle ones among them."""
    rows = draw(st.integers(0, num_rows))
    widths = [draw(st.integers(0, width)) if ragged else width for _ in range(rows)]
    lengths = [draw(st.one_of(st.just(0), st.integers(0, CONTEXT - n), st.just(CONTEXT - n))) for n in widths]
    requests = [draw(st.integers(0, REQUESTS - 1)) for _ in range(rows)]
    return requests, lengths, widths


def tensors_of(*parts):
    """Every tensor of dataclasses of tensors, under its name."""
    found = {}
    for part in parts:
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if value is not None:
                found |= tensors_of(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return found


def fresh_step(tables, shape, batch, rope, max_seq_len=None):
    """What an eager step over the padded batch gives, in new buffers on the CPU."""
    requests, lengths, widths = (values + [0] * (shape.num_rows - len(values)) for values in batch)
    return build_verify_step(
        tables,
        torch.tensor(requests, dtype=torch.int32),
        torch.tensor(lengths, dtype=torch.int32),
        torch.tensor(widths, dtype=torch.int32) if shape.ragged else shape.width,
        *rope,
        max_seq_len=max_seq_len,
        out=VerifyStep.empty(tables.layout, shape.num_rows, shape.num_tokens, rope[0].shape[1], max_seq_len),
    )


def assert_like_eager(bucket, tables, batch, rope, token_rope, max_seq_len=None):
    """Whole buffers of a bucket on any device against fresh eager results on the CPU."""
    want = fresh_step(tables, bucket.shape, batch, rope, max_seq_len)
    got = tensors_of(bucket.step)
    for name, tensor in tensors_of(want).items():
        assert torch.equal(got[name].cpu(), tensor), name
    for base, table in token_rope.items():
        rows = rope_gather(*table, want.metadata.positions)
        for mine, fresh in zip(bucket.token_rope[base], rows, strict=True):
            assert torch.equal(mine.cpu(), fresh), base

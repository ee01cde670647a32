"""One good call of every op and overload, as the public functions make it, to vary one argument at a time."""

import torch
from cache.small_cache import make
from torch.utils._python_dispatch import TorchDispatchMode

import dsv4_npu_ops as d

NAMESPACE = "dsv4_npu_ops::"
ROWS, TOKENS, CONTEXT, WIDTH = 2, 8, 256, 4


class Recorder(TorchDispatchMode):
    """Keeps the first call of every op, as (op, arguments by the names of the schema, as they were before)."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.name().startswith(NAMESPACE):
            names = [argument.name for argument in func._schema.arguments]
            arguments = dict(zip(names, args, strict=False)) | (kwargs or {})
            kept = {n: value.clone() if isinstance(value, torch.Tensor) else value for n, value in arguments.items()}
            self.calls.setdefault(func.name(), (func, kept))
        return func(*args, **(kwargs or {}))


def op_names():
    """Every op that takes a tensor."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith(NAMESPACE)]
    return sorted(name for name in names if any("Tensor" in str(a.type) for a in schema(name).arguments))


def schema(name):
    op, _, overload = name.removeprefix(NAMESPACE).partition(".")
    return getattr(getattr(torch.ops.dsv4_npu_ops, op), overload or "default")._schema


def recorded_calls():
    """By name of the op with its overload: the op, and arguments that it accepts."""
    with Recorder() as recorder:
        alloc, tables = make(page_size=16, pages=40, max_context_len=CONTEXT, full_to_swa=True)
        alloc.alloc_extend([0, 1], [0, 0], [130, 40])
        alloc.share_prefix([0], [2], [130])
        alloc.reserve_extend([0, 1], [130, 40], [134, 44])
        call_steps(tables)
        call_the_rest(tables)
        alloc.free([0, 1, 2])
    return recorder.calls


def call_steps(tables):
    layout = tables.layout
    requests, lengths, widths = torch.tensor([0, 1]), torch.tensor([130, 40]), torch.tensor([WIDTH, 1])
    cos = torch.ones(CONTEXT, 4)
    for out in (None, d.CompressMetadata.empty(layout, ROWS, TOKENS)):
        d.build_compress_metadata_verify(tables, requests, lengths, widths, num_tokens=TOKENS, out=out)
    for out in (None, d.OutCacheLoc.empty(layout, ROWS, TOKENS)):
        d.flatten_verify_bundle(tables, requests, lengths, widths, out=out)
    for out in (None, d.VerifyStep.empty(layout, ROWS, TOKENS, 4)):
        d.build_verify_step(tables, requests, lengths, widths, cos, cos.clone(), num_tokens=TOKENS, out=out)
    for out in (None, d.DraftSteps.empty(2, ROWS, 4)):
        d.build_draft_steps(lengths, cos, cos.clone(), 2, tables=tables, req_pool_indices=requests, out=out)
    tokens, hidden = torch.arange(TOKENS).view(ROWS, WIDTH), torch.ones(TOKENS, 3)
    ends = torch.tensor([0, WIDTH, TOKENS], dtype=torch.int32)
    for out in (None, d.AdvancedStep.empty(layout, ROWS, hidden_shape=(3,), hidden_dtype=torch.float32)):
        lens = lengths if out is None else lengths.int()
        d.advance_step(
            tables, requests, lens, torch.tensor([2, 1]), tokens, cu_seqlens=ends, hidden_states=hidden, out=out
        )


def call_the_rest(tables):
    loc = d.OutCacheLoc(*(torch.arange(1, 200, dtype=torch.int32) for _ in range(6)))
    starts, ends = torch.tensor([4, 0]), torch.tensor([9, 4])
    d.write_req_tables(tables, torch.tensor([3, 3]), starts, ends, loc, state_starts=(starts, starts.clone()))
    freqs = torch.polar(torch.ones(CONTEXT, 2), torch.ones(CONTEXT, 2))
    for out in (None, (torch.empty(CONTEXT, 4), torch.empty(CONTEXT, 4))):
        cos, sin = d.build_rope_tables(freqs, out=out)
    for out in (None, (torch.empty(3, 4), torch.empty(3, 4))):
        rows = d.rope_gather(cos, sin, torch.tensor([5, 7, 0]), out=out)
    d.apply_rotary(torch.ones(3, 2, 6), torch.ones(3, 6), *rows)
    for out in (None, torch.empty(9, dtype=torch.int32)):
        d.c4_slots_from_full(torch.arange(16, 32, dtype=torch.int32), out=out)
    blocks = torch.arange(12, dtype=torch.int32).view(2, 6)
    buffers = torch.empty(9, 1, 1, 4), torch.empty(9, 1, 1, 4), torch.empty(9, dtype=torch.int32)
    for out in (None, buffers):
        d.compressor_metadata(cos, sin, torch.tensor([0, 8, 9]), starts, blocks, 128, 1, 4, 9, 2, out=out)

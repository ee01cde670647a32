"""One good call of every op and overload, as the public functions make it, to vary one tensor at a time."""

from dataclasses import fields

import torch
from cache.small_cache import make
from torch.utils._python_dispatch import TorchDispatchMode

import dsv4_npu_ops as d

NAMESPACE = "dsv4_npu_ops::"
POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
STEP_FIELDS = [field.name for field in fields(d.Step)]
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
            kept = with_tensors(arguments, lambda place, tensor: tensor.clone())
            self.calls.setdefault(func.name(), (func, kept))
        return func(*args, **(kwargs or {}))


def tensors_in(arguments):
    """Every tensor by its place: the name of the argument, and the index in a list or None."""
    found = {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            found[name, None] = value
        elif isinstance(value, list | tuple):
            found |= {(name, i): part for i, part in enumerate(value) if isinstance(part, torch.Tensor)}
    return found


def with_tensors(arguments, change):
    """The same arguments with ``change(place, tensor)`` for each tensor."""
    changed = dict(arguments)
    for (name, i), tensor in tensors_in(arguments).items():
        if i is None:
            changed[name] = change((name, i), tensor)
        else:
            parts = changed[name] if changed[name] is not arguments[name] else list(arguments[name])
            parts[i] = change((name, i), tensor)
            changed[name] = parts
    return changed


def spoken_name(op, arguments, place):
    """What an error calls a tensor: its argument, or what the part of a list stands for."""
    name, i = place
    if i is None:
        return name
    if name == "tables" and "addressing" in arguments:
        return f"table of pool {POOLS[i]}"  # those of the calls below have one each, at least the first ones
    if op == "step" and name == "out":
        given = [field for bit, field in enumerate(STEP_FIELDS) if arguments["fields"] >> bit & 1]
        return f"out.{given[i]}"
    return f"{name}[{i}]"


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
    bases = dict(main_rope=(cos, cos.clone()), compress_rope=(cos.bfloat16(), cos.bfloat16()))
    verify, loc = d.VerifyStep.empty(layout, ROWS, TOKENS, 4, **bases), d.OutCacheLoc.empty(layout, ROWS, TOKENS)
    parts = [vars_of(loc), vars_of(verify.metadata), vars_of(verify)]
    given = {name: value for part in parts for name, value in part.items() if name in STEP_FIELDS}
    out = d.Step(
        **given,
        full_page_table=torch.empty(ROWS, CONTEXT // 16, dtype=torch.int32),
        num_groups=torch.empty(2, dtype=torch.int32),
        c4_state_locs=torch.empty(ROWS, 8 + WIDTH, dtype=torch.int32),
        c128_state_locs=torch.empty(ROWS, 128 + WIDTH, dtype=torch.int32),
        window_locs=torch.empty(ROWS, 128 + WIDTH, dtype=torch.int32),
    )
    rows = d.StepRows.verify(lengths, widths)
    d.build_step(tables, rows, out, req_pool_indices=requests, rope_cos=cos, rope_sin=cos.clone(), **bases)
    d.build_verify_step(tables, requests, lengths, widths, cos, cos.clone(), **bases)
    d.flatten_verify_bundle(tables, requests, lengths, widths, seq_lens_cpu=lengths, num_draft_tokens_cpu=widths)
    d.build_draft_steps(lengths, cos, cos.clone(), 2, tables=tables, req_pool_indices=requests)
    call_drafts_apart(cos)
    samples, hidden = torch.tensor([[5, 6, -1, -1], [7, -1, -1, -1]]), torch.ones(TOKENS, 3)
    d.advance_step(
        tables,
        requests,
        lengths.int(),
        None,
        samples,
        num_draft_tokens=torch.tensor([WIDTH - 1, WIDTH - 1]),
        cu_seqlens=torch.tensor([0, WIDTH, TOKENS], dtype=torch.int32),
        backup_tokens=torch.tensor([8, 9]),
        hidden_states=hidden,
    )
    offsets, guesses = torch.tensor([0, WIDTH, TOKENS], dtype=torch.int32), torch.tensor([WIDTH - 1, WIDTH - 1])
    torch.ops.dsv4_npu_ops.advance_step.samples(
        lengths, samples, offsets, guesses, torch.tensor([8, 9]), CONTEXT, lengths_are_final=True
    )


def call_drafts_apart(cos):
    blocks = torch.ones(ROWS, CONTEXT // 16, dtype=torch.int32)

    def of_steps(*shape):
        return [torch.empty(shape, dtype=torch.int32) for _ in range(2)]

    rope = [cos, cos.clone()]
    rope_rows = [torch.empty(ROWS, 4) for _ in range(4)]
    rows = blocks, torch.tensor([130, 40]), torch.tensor([131, 41])
    torch.ops.dsv4_npu_ops.draft_steps.apart(
        *rows, rope, 16, CONTEXT, -1, of_steps(ROWS, 2), of_steps(ROWS), of_steps(ROWS + 1), rope_rows
    )


def vars_of(result):
    return {field.name: getattr(result, field.name) for field in fields(result)}


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
    pages, owners = torch.arange(1, 10), torch.zeros(10, dtype=torch.int32)
    rows, last_loc = (torch.tensor([1, 0]), torch.tensor([3, 0]), torch.tensor([130, 8])), torch.tensor([18, -1])
    full_to_swa = torch.arange(10 * 16)
    lists = (pages, pages.clone(), pages.clone())
    table = torch.zeros(2, 3, dtype=torch.int32)
    d.ops.extend_needs(*rows[1:], 16, 16)
    d.ops.extend_from_lists(*rows, last_loc, *lists, full_to_swa, table, owners, 135, 34, 1, 1, 16, 16)
    ends, requests = torch.tensor([0, 8, 9]), torch.tensor([1, 0])
    table = d.BatchPageTable(blocks, 128, 4, torch.tensor([0, 0]))
    d.token_slots(ends, torch.tensor([8, 1]), [d.BatchPageTable(blocks, 16), table], 9, 2)
    d.compressor_metadata(cos, sin, ends, starts, blocks, 128, 1, 4, 9, 2, req_pool_indices=requests)

"""What a new user gets wrong is said in one line and in the words of what they wrote (docs/spec.md, errors)."""

import pytest
import torch

import dsv4_npu_ops as d

pytestmark = pytest.mark.cpu_only

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
LAYOUT = d.KVLayout(16, 32, 4, 256, dict.fromkeys(POOLS, 40))
TABLES = d.RequestTables(LAYOUT)
ROWS, LENGTHS, COS = torch.tensor([0, 1]), torch.tensor([9, 5]), torch.ones(256, 4)


def verify_step_into(**fields):
    out = d.VerifyStep.empty(LAYOUT, 2, 8, 4)
    for name, value in fields.items():
        owner = next(o for o in (out, out.metadata, out.out_cache_loc) if hasattr(o, name))
        setattr(owner, name, value)
    return d.build_verify_step(TABLES, ROWS, LENGTHS, 4, COS, COS, out=out)


def step_into(rows=None, tables=TABLES, **fields):
    rows = d.StepRows.mixed(torch.tensor([0, 4, 8]), LENGTHS) if rows is None else rows
    return d.build_step(tables, rows, d.Step(**fields), req_pool_indices=ROWS)


SHORT = torch.zeros(1, dtype=torch.int32)
ENGINES = d.RequestTables.of({"swa": d.SlotTable(torch.zeros(4, 255).int(), 16)}, max_context_len=256)
CALLS = [
    (lambda: step_into(cu_seqlens=SHORT), "build_step: out.cu_seqlens has shape [1], expected [3]"),
    (
        lambda: step_into(d.StepRows.mixed(torch.tensor([1, 4, 8]), LENGTHS), kv_lens=SHORT.expand(2)),
        "build_step: out.kv_lens has strides [0] for shape [2]",
    ),
    (lambda: step_into(d.StepRows.mixed(torch.tensor([1, 4, 8]), LENGTHS)), "build_step: cu_seqlens[0] is 1, expected"),
    (lambda: step_into(d.StepRows.verify(LENGTHS, -1)), "build_step: num_draft_tokens is -1, expected at least 0"),
    (lambda: step_into(d.StepRows.final(LENGTHS + 250)), "build_step: seq_lens[0] is 259 with 1 new tokens, expected"),
    (lambda: step_into(LENGTHS), "build_step: rows is a tensor of shape [2], expected StepRows"),
    (lambda: d.build_step(TABLES, d.StepRows.final(LENGTHS), {}), "build_step: out is {}, expected Step"),
    (
        lambda: step_into(tables=ENGINES),
        "build_step: table of pool swa has 255 columns for 255 units, expected room for 256 (tables.max_context_len",
    ),
    (
        lambda: step_into(kv_lens=SHORT.to("meta")),
        "build_step: out.kv_lens is on meta, expected cpu like table of pool",
    ),
    (lambda: d.StepRows.final([3]), "StepRows.final: seq_lens is [3], expected a tensor"),
    (lambda: d.StepRows.verify(LENGTHS, 2.5), "StepRows.verify: num_draft_tokens is 2.5, expected an integer or a"),
    (lambda: d.StepRows.prefill(LENGTHS, COS), "StepRows.prefill: seq_lens has shape [256, 4], expected 1 dimension"),
    (
        lambda: d.RequestTables.of({}, max_context_len=2**31),
        f"RequestTables.of: max_context_len is {2**31}, expected 1 to {2**31 - 1} (int32)",
    ),
    (
        lambda: d.compressor_metadata(COS, COS, ROWS, LENGTHS, ROWS, 16, 1, 4, 3, 1),
        "compressor_metadata: kv_block_table has shape [2], expected 2 dimensions",
    ),
    (
        lambda: d.advance_step(TABLES, ROWS, LENGTHS, ROWS, ROWS, num_draft_tokens=-1),
        "advance_step: num_draft_tokens is -1, expected at least 0",
    ),
    (lambda: verify_step_into(start_pos=SHORT), "build_verify_step: out.metadata.start_pos has shape [1], expected"),
    (lambda: verify_step_into(out_swa_loc=SHORT), "build_verify_step: out.out_cache_loc.out_swa_loc has shape [1]"),
    (lambda: verify_step_into(c4_cos=COS), "build_verify_step: out.c4_cos has shape [256, 4], expected [4, 4]"),
    (
        lambda: d.build_compress_metadata_prefill(TABLES, ROWS, LENGTHS, LENGTHS - 1, num_tokens=4),
        "build_compress_metadata_prefill: seq_lens[0] is 8, expected at least prefix_lens[0] = 9",
    ),
    (
        lambda: d.build_compress_metadata_prefill(TABLES, ROWS, LENGTHS, LENGTHS - 1),
        "build_compress_metadata_prefill: seq_lens[0] is 8, expected at least prefix_lens[0] = 9",
    ),
    (
        lambda: d.build_compress_metadata_decode(TABLES, ROWS, LENGTHS + 300),
        "build_compress_metadata_decode: seq_lens[0] is 309 with 1 new tokens, expected at most 256 "
        "(tables.max_context_len) with them",
    ),
    (
        lambda: d.rope_gather(COS, COS, ROWS, out=(COS, SHORT)),
        "rope_gather: out[0] has shape [256, 4], expected [2, 4]",
    ),
    (lambda: d.rope_gather(COS, COS, [1]), "rope_gather: positions is [1], expected a tensor"),
    (lambda: d.rope_gather(COS, COS, LENGTHS + 300), "rope_gather: positions[0] is 309, expected 0 <= position < 256"),
    (lambda: d.c4_slots_from_full([3, 7]), "c4_slots_from_full: out_full_loc is [3, 7], expected a tensor"),
    (lambda: d.build_draft_steps([5], COS, COS, 3), "build_draft_steps: seq_lens is [5], expected a tensor"),
    (lambda: d.build_draft_steps(ROWS, [1.0], COS, 3), "build_draft_steps: rope_cos is [1.0], expected a tensor"),
    (lambda: d.build_draft_steps(ROWS, COS, COS, 2.5), "build_draft_steps: num_steps is 2.5, expected an integer"),
    (lambda: d.apply_rotary([1.0], None, COS, COS), "apply_rotary: q is [1.0], expected a tensor"),
    (
        lambda: d.advance_step(TABLES, ROWS, LENGTHS, [1, 1], ROWS[:, None]),
        "advance_step: accepted_lens is [1, 1], expected",
    ),
    (
        lambda: d.build_verify_step(ROWS, TABLES, LENGTHS, 4, COS, COS),
        "build_verify_step: tables is a tensor of shape [2], expected RequestTables",
    ),
    (
        lambda: d.build_verify_step(TABLES, ROWS, LENGTHS, 4, COS, COS, num_tokens=2**70),
        f"build_verify_step: num_tokens is {2**70}, expected an integer of 64 bits",
    ),
    (
        lambda: d.write_req_tables(TABLES, ROWS, ROWS, LENGTHS, [1] * 6),
        "write_req_tables: loc is [1, 1, 1, 1, 1, 1], expected OutCacheLoc",
    ),
    (
        lambda: d.flatten_verify_bundle(TABLES, ROWS, LENGTHS, 4, out=d.VerifyStep.empty(LAYOUT, 2, 8, 4)),
        "flatten_verify_bundle: out is a VerifyStep, expected OutCacheLoc",
    ),
]


@pytest.mark.parametrize("call, message", CALLS, ids=[message for _, message in CALLS])
def test_messages_speak_of_what_was_called_and_written(call, message):
    with pytest.raises((ValueError, IndexError)) as error:
        call()
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_the_ops_themselves_name_the_arguments_of_their_schemas():
    with pytest.raises(ValueError, match=r"^step: max_context_len is 0, expected at least 1"):
        torch.ops.dsv4_npu_ops.step(
            *(*TABLES.op_pools, ROWS, LENGTHS, None, None, None, 4, 1, 32, 0, [], 0),
        )


def test_a_broken_table_is_an_error_of_the_allocators_method():
    tables = d.RequestTables(LAYOUT)
    alloc = d.KVAllocator(LAYOUT, tables)
    alloc.alloc_extend([1], [0], [20])
    tables.table("full")[1, 1] = 0
    with pytest.raises(ValueError, match=r"^alloc_decode: page 1 of request 1 in pool full is 0, expected"):
        alloc.alloc_decode([1], [21])


LAYOUTS = [
    (dict(device="cuda"), "device is 'cuda', expected a cpu or npu device"),
    (dict(device="meta"), "device is 'meta', expected a cpu or npu device"),
    (dict(device=3), "device is '3', expected a cpu or npu device"),
    (dict(sliding_window=2**63), f"sliding_window is {2**63}, expected 1 to {2**31 - 1} (int32)"),
    (dict(max_context_len=2**31), f"max_context_len is {2**31}, expected 1 to {2**31 - 1} (int32)"),
    (dict(max_requests=2**70), f"max_requests is {2**70}, expected 1 to {2**31 - 1} (int32)"),
    (dict(max_requests=0), f"max_requests is 0, expected 1 to {2**31 - 1} (int32)"),
    (dict(page_size=2**31), f"page_size is {2**31}, expected a power of two from 1 to 2**30"),
    (dict(num_pages={"swa": 2**70}), f"num_pages['swa'] is {2**70}, expected 0 or more with all slots within int32"),
]


@pytest.mark.parametrize("arguments, message", LAYOUTS, ids=[message for _, message in LAYOUTS])
def test_a_layout_refuses_what_its_ops_would(arguments, message):
    with pytest.raises(ValueError) as error:
        d.KVLayout(**arguments)
    assert str(error.value) == f"KVLayout: {message}"


def test_the_largest_layout_is_one_that_ops_take():
    layout = d.KVLayout(2**30, 2**31 - 1, 1, 2**31 - 1, {"full": 0})
    tables = d.RequestTables(layout)
    tables.table("full")[:] = torch.tensor([3, 1])
    out = d.Step(
        kv_lens=torch.zeros(1).int(), full_page_table=torch.zeros(1, 2).int(), out_full_loc=torch.zeros(2).int()
    )
    d.build_step(tables, d.StepRows.verify(torch.tensor([2**31 - 3]), 2), out)
    assert out.kv_lens.tolist() == [2**31 - 1] and out.full_page_table.tolist() == [[3, 1]]
    assert out.out_full_loc.tolist() == [2**31 - 3, 2**31 - 2]


def test_constructors_say_what_they_were_given():
    with pytest.raises(ValueError, match=r"^KVAllocator: layout is a RequestTables, expected a KVLayout"):
        d.KVAllocator(TABLES, LAYOUT)
    with pytest.raises(ValueError, match=r"^KVAllocator: tables is a KVLayout, expected a RequestTables"):
        d.KVAllocator(LAYOUT, LAYOUT)
    with pytest.raises(ValueError, match=r"^RequestTables: layout is a dict, expected a KVLayout"):
        d.RequestTables({"full": 3})
    bare = d.KVLayout()
    with pytest.raises(
        ValueError, match=r"^KVAllocator: layout\.num_pages is empty, expected usable pages of at least"
    ):
        d.KVAllocator(bare, d.RequestTables(bare))


def test_names_of_an_op_that_is_no_public_function_are_left_alone():
    """An error that is not of an op keeps its text."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'sine'"):
        d.rope_gather(COS, sine=COS, positions=ROWS)

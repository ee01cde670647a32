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


SHORT = torch.zeros(1, dtype=torch.int32)
CALLS = [
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
        "(tables.layout.max_context_len) with them",
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
    out = d.OutCacheLoc.empty(LAYOUT, 2, 8).in_order()
    names = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
    buffers = {f"out_{name}_loc": tensor for name, tensor in zip(names, out, strict=True)}
    with pytest.raises(ValueError, match=r"^verify_bundle: out_swa_loc has shape"):
        torch.ops.dsv4_npu_ops.verify_bundle.out(
            *TABLES.in_order(), ROWS, LENGTHS, None, 4, 256, **buffers | {"out_swa_loc": SHORT}
        )


def test_a_broken_table_is_an_error_of_the_allocators_method():
    tables = d.RequestTables(LAYOUT)
    alloc = d.KVAllocator(LAYOUT, tables)
    alloc.alloc_extend([1], [0], [20])
    tables.full[1, 19] = 0
    with pytest.raises(ValueError, match=r"^alloc_decode: tables\.full\[1, 19\] is 0, expected the slot of a page"):
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
    """One row of the longest context: more columns than memory, so that only the numbers are tried."""
    layout = d.KVLayout(2**30, 2**31 - 1, 1, 2**31 - 1, {"full": 0})
    lengths = torch.tensor([2**31 - 2], dtype=torch.int32)
    empty = torch.zeros(1, 0, dtype=torch.int32)
    metadata = torch.ops.dsv4_npu_ops.compress_metadata(
        *[empty] * 5, lengths * 0, lengths, None, None, 2, 1, 1, 2**31 - 1, *[2**30, layout.sliding_window, 2**31 - 1]
    )
    assert metadata[7].tolist() == [2**31 - 2]


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

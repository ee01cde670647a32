"""Steps in compiled and exported functions: tables are inputs, results are outputs (docs/compile.md)."""

import dataclasses

import pytest
import torch
from torch.utils import _pytree as pytree

import dsv4_npu_ops as d

pytestmark = pytest.mark.cpu_only

POOLS = ("full", "swa", "c4", "c128", "c4_state", "c128_state")
WIDTH, CONTEXT = 4, 256
REQUESTS, COS = torch.tensor([0, 1]), torch.linspace(0, 1, CONTEXT * 4).view(CONTEXT, 4)


def served(first_page_user, lengths):
    """Tables of a batch; ``first_page_user`` is a request whose pages come before those of the batch."""
    layout = d.KVLayout(16, 32, 4, CONTEXT, dict.fromkeys(POOLS, 60))
    tables = d.RequestTables(layout)
    alloc = d.KVAllocator(layout, tables)
    alloc.alloc_extend([3], [0], [first_page_user])
    alloc.alloc_extend([0, 1], [0, 0], lengths)
    alloc.reserve_extend([0, 1], lengths, [length + WIDTH for length in lengths])
    return tables, torch.tensor(lengths)


def step(tables, lengths):
    """Everything that a serving step calls, and nothing else."""
    verify = d.build_verify_step(tables, REQUESTS, lengths, WIDTH, COS, COS)
    bundle = d.flatten_verify_bundle(tables, REQUESTS, lengths, WIDTH)
    drafts = d.build_draft_steps(lengths, COS, COS, 3, tables=tables, req_pool_indices=REQUESTS)
    tokens = verify.metadata.positions.view(2, WIDTH) * 3
    advanced = d.advance_step(tables, REQUESTS, lengths, torch.ones_like(lengths), tokens)
    rows = d.rope_gather(COS, COS, verify.metadata.positions)
    metadata = d.build_compress_metadata_decode(tables, REQUESTS, lengths)
    fields = d.Step(*(torch.zeros(2 * WIDTH).int() for _ in range(2)), kv_lens=torch.zeros(2).int())
    d.build_step(tables, d.StepRows.verify(lengths, WIDTH), fields, req_pool_indices=REQUESTS)
    return verify, bundle, drafts, advanced, rows, metadata, fields


def assert_equal(got, want):
    leaves, want_leaves = pytree.tree_leaves(got), pytree.tree_leaves(want)
    assert len(leaves) == len(want_leaves) > 50
    for leaf, want_leaf in zip(leaves, want_leaves, strict=True):
        assert (leaf is None and want_leaf is None) or torch.equal(leaf, want_leaf)
    assert [type(part) for part in got] == [type(part) for part in want]


def engines(first_slot):
    """What an engine keeps: slots of full, a mapping to swa, rings in its pages, groups in the tokens' slots."""
    full = torch.arange(4 * CONTEXT).view(4, CONTEXT) + first_slot
    pools = {
        "full": d.SlotTable(full, 16),
        "swa": d.MappedSlots(torch.arange(4 * CONTEXT + 99).flip(0).contiguous(), 16),
        "c4": d.DividedSlots(),
        "c128": d.PageTable(torch.arange(8).view(4, 2).int() + first_slot, 1),
        "c4_state": d.PageRing(8),
        "c128_state": d.RequestRing(128),
    }
    return d.RequestTables.of(pools, sliding_window=32, max_context_len=CONTEXT)


ENGINES = [engines(1), engines(40)]
SERVED = [served(5, [126, 5]), served(90, [30, 111])]


def test_a_compiled_step_follows_its_tables():
    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for tables, lengths in SERVED + [(tables, SERVED[0][1]) for tables in ENGINES]:
        assert_equal(compiled(tables, lengths), step(tables, lengths))


def assert_differ(one, other):
    assert not all(torch.equal(a, b) for a, b in zip(*map(pytree.tree_leaves, (one, other)), strict=True))


class Step(torch.nn.Module):
    def forward(self, tables, lengths):
        return step(tables, lengths)


@pytest.mark.parametrize("inputs", [SERVED, [(tables, SERVED[0][1]) for tables in ENGINES]], ids=["ours", "engines"])
def test_an_exported_step_runs_on_other_tables_after_saving_and_loading(tmp_path, inputs):
    program = torch.export.export(Step(), inputs[0])
    torch.export.save(program, tmp_path / "step.pt2")
    loaded = torch.export.load(tmp_path / "step.pt2").module()
    assert_differ(*(step(*arguments) for arguments in inputs))
    for tables, lengths in inputs:
        assert_equal(loaded(tables, lengths), step(tables, lengths))


def test_an_exported_step_refuses_tables_of_another_layout():
    program = torch.export.export(Step(), SERVED[0]).module()
    layout = d.KVLayout(32, 32, 4, CONTEXT, dict.fromkeys(POOLS, 60))
    with pytest.raises(ValueError, match=r"TreeSpec\(RequestTables, \(32, 256, \(16, 4"):
        program(d.RequestTables(layout), SERVED[0][1])


def test_a_compiled_function_writes_tables_that_it_is_given():
    tables, _ = served(5, [126, 5])

    def write(tables, starts, ends, loc):
        d.write_req_tables(tables, REQUESTS, starts, ends, loc)

    loc = d.OutCacheLoc(*(torch.arange(100, 200, dtype=torch.int32) for _ in POOLS))
    torch.compile(write, fullgraph=True, backend="aot_eager")(tables, torch.tensor([4, 0]), torch.tensor([8, 0]), loc)
    assert tables.table("full")[0, 0] == 100 // 16 and tables.table("c4")[0, 0] == 100 // 16


def parts(tree):
    return [getattr(tree, field.name) for field in dataclasses.fields(tree)]


def test_every_type_is_a_tree_and_comes_back_from_its_leaves_and_from_text():
    tables, lengths = SERVED[0]
    verify, bundle, drafts, advanced, _, metadata, fields = step(tables, lengths)
    groups = d.compressor_metadata(COS, COS, torch.tensor([0, 9]), lengths[:1], lengths[:1, None], 16, 1, 4, 5, 1)
    rows = d.StepRows.mixed(torch.tensor([0, 3, 4]), lengths)
    copies = d.SharedPrefix([3], {"full": (torch.ones(1), torch.zeros(1))})
    for tree in (verify, bundle, drafts, advanced, metadata, fields, groups, rows, copies, ENGINES[0], tables):
        leaves, spec = pytree.tree_flatten(tree)
        assert len(leaves) >= 2
        back = pytree.tree_unflatten(leaves, pytree.treespec_loads(pytree.treespec_dumps(spec)))
        assert type(back) is type(tree)
        assert all(a is b for a, b in zip(pytree.tree_leaves(back), leaves, strict=True))
    assert back.layout == tables.layout and back.page_size_of("swa") == 16 and back.sliding_window == 32
    assert pytree.tree_structure(back) == pytree.tree_structure(tables) != pytree.tree_structure(ENGINES[0])
    absent = [part for part in parts(advanced) if part is None]
    assert len(absent) == 3 and len(pytree.tree_leaves(advanced)) == len(parts(advanced)) - 3


class Rows(torch.nn.Module):
    def forward(self, tables, requests, lengths):
        return d.build_verify_step(tables, requests, lengths, WIDTH, COS, COS)


def test_the_number_of_rows_may_stay_free():
    tables, lengths = SERVED[0]
    rows = torch.export.Dim("rows", min=1, max=64)
    shapes = ([{}] * len(POOLS), {0: rows}, {0: rows})
    program = torch.export.export(Rows(), (tables, REQUESTS, lengths), dynamic_shapes=shapes).module()
    compiled = torch.compile(Rows(), fullgraph=True, dynamic=True, backend="aot_eager")
    for requests in ([0, 1], [1], [0, 1, 0, 0, 1]):
        arguments = tables, torch.tensor(requests), lengths[requests]
        want = pytree.tree_leaves(Rows()(*arguments))
        for step in (program, compiled):
            got = pytree.tree_leaves(step(*arguments))
            assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))

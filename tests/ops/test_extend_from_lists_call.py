"""Counting and extending as one call, beside the op and by hand."""

import pytest
import torch
from ops.test_extend_from_lists import EXAMPLE_ROWS, SIZES, Tensors, example

import dsv4_npu_ops.ops  # noqa: F401  (loading it registers torch.ops.dsv4_npu_calls)

call = torch.ops.dsv4_npu_calls.extend_from_lists
LENS = torch.tensor([2046, 640, 512]), torch.tensor([2177, 640, 640])
"""Of the example, on the host."""


def tensors_of(device="cpu"):
    world = example()
    return Tensors(world, [(*row, world.last.get(row[0], 10**6)) for row in EXAMPLE_ROWS], device)


def test_the_readme_example(device):
    """What the op writes and returns, what is left of the lists, and the columns with new pages."""
    ours, ops = tensors_of(device), tensors_of(device)
    lists, tables = ours.arguments()[4:7], (ours.mapping, ours.table, ours.owners)
    extended, *counts, new_columns = call(*ours.arguments(), *LENS, 259, 128, 16)
    slots = torch.ops.dsv4_npu_ops.extend_from_lists(*ops.arguments(), *SIZES)
    assert [(loc.dtype, loc.tolist()) for loc in extended[:5]] == [(loc.dtype, loc.tolist()) for loc in slots]
    assert [table.tolist() for table in tables] == [t.tolist() for t in (ops.mapping, ops.table, ops.owners)]
    assert [pages.tolist() for pages in extended[5:]] == [[14], [], [21]]
    assert counts == [3, 3, 3, 1] and new_columns == [0, 1, 2]
    # Views, as an engine has them.
    assert all(
        rest.untyped_storage().data_ptr() == pages.untyped_storage().data_ptr()
        for rest, pages in zip(extended[5:], lists, strict=True)
    )


def test_a_list_of_which_nothing_is_taken_is_itself(device):
    tensors = tensors_of(device)
    rows = [torch.tensor([value], device=device) for value in (3, 2047, 2685)]
    extended, *counts = call(rows[0], None, *rows[1:], *tensors.arguments()[4:], None, torch.tensor([2047]), 1, 128, 16)
    assert [loc.tolist() for loc in extended[:5]] == [[2686], [894], [], [], []] and counts == [0, 0, 0, 0, []]
    assert all(rest is pages for rest, pages in zip(extended[5:], tensors.arguments()[4:7], strict=True))


@pytest.mark.parametrize("short", range(3))
def test_a_list_that_is_short_changes_nothing(device, short):
    """One page too few; the numbers say what is needed."""
    tensors = tensors_of(device)
    tensors.lists[short] = tensors.lists[short][: (2, 2, 0)[short]]
    before = [tensor.clone() for tensor in tensors.arguments()]
    assert call(*tensors.arguments(), *LENS, 259, 128, 16) == ([], 3, 3, 3, 1, [0, 1, 2])
    assert all(map(torch.equal, tensors.arguments(), before))


BAD = [
    ((*LENS, 258), "num_tokens is 258, expected 259, the sum of the rows"),
    ((None, LENS[1], 3), "expected lengths on the host as on the device"),
    ((LENS[0], LENS[1].to("meta"), 259), "expected lengths on the host as on the device"),
    ((LENS[0].to("meta"), LENS[1], 259), "prefix_lens is on meta, expected"),
    ((*(lens[[0, 2]] for lens in LENS), 259), "3 rows of req_pool_indices, expected 2 as on the host"),
    ((LENS[1], LENS[0], 259), "seq_lens[0] is 2046, expected no less than prefix_lens, which is 2177"),
]


@pytest.mark.parametrize("host, message", BAD, ids=[message for _, message in BAD])
def test_other_lengths_on_the_host_change_nothing(device, host, message):
    tensors = tensors_of(device)
    before = [tensor.clone() for tensor in tensors.arguments()]
    with pytest.raises(ValueError) as error:
        call(*tensors.arguments(), *host, 128, 16)
    assert f"extend_from_lists: {message}" in str(error.value)
    assert all(map(torch.equal, tensors.arguments(), before))

"""Memory of the pools by kind, and how two ends are checked against each other: case 26 of the contract."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from dsv4_npu_ops.disagg import (
    ComponentMismatch,
    StateType,
    match_components,
    page_copies,
    state_components,
)

PAGE, PAGES = 4, 6
SLOTS = PAGE * (PAGES + 1)


def layer(ratio):
    """Tensors of one layer; every one has rows of another size."""
    tensors = {"ratio": ratio, "swa": torch.zeros(SLOTS, 8), "compressor": None, "indexer": None}
    if ratio:
        features = 10 if ratio == 4 else 6
        tensors["compressor"] = SimpleNamespace(entries=torch.zeros(SLOTS, 5), state=torch.zeros(SLOTS, 2, features))
    if ratio == 4:
        state = torch.zeros(SLOTS, 2, 3, dtype=torch.bfloat16)
        tensors["indexer"] = SimpleNamespace(entries=torch.zeros(SLOTS, 2, dtype=torch.bfloat16), state=state)
    return SimpleNamespace(**tensors)


def pools(*ratios, nextn=True):
    return SimpleNamespace(
        page_size_of=lambda pool: PAGE, layers=[layer(r) for r in ratios], nextn=layer(0) if nextn else None
    )


def every_page(components, pages=(1,)):
    return {component.type: list(pages) for component in components}


def test_components_list_every_tensor_in_order():
    held = pools(4, 0, 128, 4)
    components = state_components(held)
    assert [component.type for component in components] == list(StateType)
    first, last = held.layers[0], held.layers[3]
    tensors = {
        "swa": [entry.swa for entry in (*held.layers, held.nextn)],
        "c4": [first.compressor.entries, last.compressor.entries],
        "c128": [held.layers[2].compressor.entries],
        "indexer": [first.indexer.entries, last.indexer.entries],
        "c4_state": [first.compressor.state, first.indexer.state, last.compressor.state, last.indexer.state],
        "c128_state": [held.layers[2].compressor.state],
    }
    item_lens = {"swa": [128] * 5, "c4": [80] * 2, "c128": [80], "indexer": [16] * 2, "c4_state": [320, 48] * 2,
                 "c128_state": [192]}  # fmt: skip
    for component in components:
        expected = tensors[component.type]
        assert component.data_ptrs == tuple(tensor.data_ptr() for tensor in expected)
        assert component.data_lens == tuple(tensor.nbytes for tensor in expected)
        assert component.item_lens == tuple(item_lens[component.type])


def test_a_ratio_without_layers_is_left_out_on_both_sides():
    ends = [state_components(pools(0, 128, 0)), state_components(pools(0, 128, 0))]
    assert [component.type.value for component in ends[0]] == ["swa", "c128", "c128_state"]
    match_components(*ends)
    payload = {kind: [1] for kind in StateType}
    assert len(page_copies(*ends, payload, payload).lens) == 4 + 1 + 1


def test_an_engine_without_an_mtp_layer_has_one_window_less():
    with pytest.raises(ComponentMismatch, match="component swa: expected 3 tensors, got 2 addresses"):
        match_components(state_components(pools(0, 4)), state_components(pools(0, 4, nextn=False)))


@pytest.mark.parametrize("change", ["missing", "unknown order", "repeated", "none"])
def test_another_list_of_components_raises(change):
    ours = state_components(pools(0, 4, 128))
    theirs = {
        "missing": ours[:-1],
        "unknown order": [ours[1], ours[0], *ours[2:]],
        "repeated": [*ours, ours[-1]],
        "none": [],
    }[change]
    for ends in ((ours, theirs), (theirs, ours)):
        with pytest.raises(ComponentMismatch, match="components: expected"):
            match_components(*ends)
        with pytest.raises(ComponentMismatch):
            page_copies(*ends, every_page(ours), every_page(ours))


def test_another_page_size_in_bytes_raises():
    ours = state_components(pools(0))
    theirs = [replace(ours[0], item_lens=(128, 64))]
    with pytest.raises(
        ComponentMismatch, match=r"component swa: expected pages of \[128, 128\] bytes, got \[128, 64\]"
    ):
        match_components(ours, theirs)


def test_copies_join_what_is_contiguous_on_both_ends():
    ours, theirs = state_components(pools(0, nextn=False)), state_components(pools(0, nextn=False))
    copies = page_copies(ours, theirs, {StateType.SWA: [1, 2, 3, 5, 6]}, {StateType.SWA: [3, 4, 6, 1, 2]})
    (source,), (target,) = ours[0].data_ptrs, theirs[0].data_ptrs
    assert copies.source == [source + 128 * page for page in (1, 3, 5)]
    assert copies.target == [target + 128 * page for page in (3, 6, 1)]
    assert copies.lens == [256, 128, 256]


def test_every_tensor_of_a_component_is_copied():
    ours, theirs = state_components(pools(4, 0)), state_components(pools(4, 0))
    payload = {component.type: [2] for component in ours} | {StateType.C4: []}
    copies = page_copies(ours, theirs, payload, payload)
    expected = [
        (ptr + 2 * item, their_ptr + 2 * item, item)
        for our, their in zip(ours, theirs, strict=True)
        if our.type is not StateType.C4
        for ptr, their_ptr, item in zip(our.data_ptrs, their.data_ptrs, our.item_lens, strict=True)
    ]
    assert list(zip(copies.source, copies.target, copies.lens, strict=True)) == expected


@pytest.mark.parametrize(
    ("pages", "their_pages", "message"),
    [
        ({"swa": [1, 2]}, {"swa": [1]}, "component swa: expected 2 pages, got 1"),
        ({"swa": [1]}, {"swa": [1, 2]}, "component swa: expected 1 pages, got 2"),
        ({"swa": [1]}, {}, "component swa: expected their list of pages, got none"),
        ({}, {"swa": [1]}, "component swa: expected our list of pages, got none"),
        ({"swa": [0]}, {"swa": [1]}, "our page is 0, expected 1 to 6"),
        ({"swa": [1]}, {"swa": [7]}, "their page is 7, expected 1 to 6"),
        ({"swa": [1]}, {"swa": [-1]}, "their page is -1, expected 1 to 6"),
    ],
)
def test_page_lists_that_do_not_match_raise_and_are_never_cut(pages, their_pages, message):
    ends = state_components(pools(0)), state_components(pools(0))
    with pytest.raises(ComponentMismatch, match=message):
        page_copies(*ends, *({StateType(kind): ids for kind, ids in end.items()} for end in (pages, their_pages)))


def test_an_unknown_type_is_no_state_type():
    with pytest.raises(ValueError, match="'mamba' is not a valid StateType"):
        StateType("mamba")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda held: setattr(held.layers[0], "swa", torch.zeros(8, SLOTS).T), "tensor 0 of swa has strides"),
        (lambda held: setattr(held.nextn, "swa", torch.zeros(SLOTS - 1, 8)), "tensor 1 of swa has 27 slots"),
        (lambda held: setattr(held.layers[0], "ratio", 8), "layer 0 has ratio 8, expected 0, 4 or 128"),
        (lambda held: setattr(held.layers[0], "indexer", None), "expected a compressor and an indexer"),
        (lambda held: setattr(held.layers[0], "ratio", 128), "expected a compressor and no indexer"),
    ],
)
def test_pools_that_cannot_be_described_are_refused(spoil, message):
    held = pools(4)
    spoil(held)
    with pytest.raises(ValueError, match=message):
        state_components(held)

"""Tests draw the same values whatever ran before them, and explorations do not."""

import importlib.util
import random
import sys

import explore
import hypothesis
import numpy
import pytest
import random_draws
import torch
from hypothesis import given, seed, settings
from hypothesis import strategies as st


def drawn(fixed_seed=None, profile="default"):
    """What a property test of 200 examples draws, the global generators included."""
    values = []

    @given(number=st.integers(-5000, 5000), data=st.data())
    def property_test(number, data):
        several = data.draw(st.lists(st.floats(allow_nan=False)))
        values.append((number, several, random.random(), numpy.random.random(), torch.rand(()).item()))

    test = settings(settings.get_profile(profile), max_examples=200)(property_test)
    (test if fixed_seed is None else seed(fixed_seed)(test))()
    return values


def test_the_same_after_other_tests_and_other_imports(tmp_path, monkeypatch):
    before = drawn()
    torch.rand(3), random.random(), numpy.random.random()
    source = tmp_path / "constants_of_a_project.py"
    source.write_text("\n".join(f"A{value} = {value}" for value in range(1234, 1334)))
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(source.stem, source))
    monkeypatch.setitem(sys.modules, source.stem, module)
    assert drawn() == before and len(before) == 200


@pytest.mark.parametrize("name", ["_get_local_constants", "Constants"])
def test_a_hypothesis_that_finds_constants_otherwise_is_named(monkeypatch, name):
    monkeypatch.delattr(random_draws.providers, name)
    with pytest.raises(
        RuntimeError, match=rf"hypothesis {hypothesis.__version__} has no _get_local_constants or Const"
    ):
        random_draws.draw_no_constants()


def test_explorations_draw_by_their_seed():
    assert drawn(5, "explore") == drawn(5, "explore") != drawn(6, "explore")
    assert drawn(None, "explore") != drawn(None, "explore")


@pytest.fixture
def consumed():
    torch.rand(3), random.random(), numpy.random.random()


@pytest.mark.parametrize("again", range(2))
def test_global_generators_start_alike(consumed, again):
    assert round(torch.rand(()).item(), 4) == 0.4963
    assert round(random.random(), 4) == 0.8444
    assert round(numpy.random.random(), 4) == 0.5488


def test_an_exploration_says_which_seeds_failed():
    assert explore.summary(1, []) == "1 round, none failed"
    assert explore.summary(2, [7]) == "2 rounds, 1 failed: seed 7"
    assert explore.summary(30, [7, 9]) == "30 rounds, 2 failed: seeds 7, 9"

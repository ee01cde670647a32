"""Speculative options: what is left out, and what contradicts itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4_npu_ops.speculative import SpeculativeOptions, normalise_speculative


def test_nextn_with_topk_unset_means_topk_1():
    assert normalise_speculative("NEXTN", num_steps=3) == SpeculativeOptions("EAGLE", 3, 1, 4)
    assert normalise_speculative("nextn", num_draft_tokens=4) == SpeculativeOptions("EAGLE", 3, 1, 4)
    assert normalise_speculative("EAGLE", 3, 1, 4) == SpeculativeOptions("EAGLE", 3, 1, 4)
    assert normalise_speculative(None) == SpeculativeOptions(None, 0, 1, 1)


def test_branches_keep_the_callers_numbers():
    assert normalise_speculative("NEXTN", 2, 4, 8) == SpeculativeOptions("EAGLE", 2, 4, 8)


@given(st.integers(1, 50), st.sampled_from([None, 1]), st.booleans())
def test_a_chain_is_one_token_longer_than_its_steps(steps, topk, by_tokens):
    given_number = {"num_draft_tokens": steps + 1} if by_tokens else {"num_steps": steps}
    assert normalise_speculative("NEXTN", topk=topk, **given_number) == SpeculativeOptions("EAGLE", steps, 1, steps + 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("MEDUSA", 3), "algorithm is 'MEDUSA', expected one of NEXTN, EAGLE"),
        (("NEXTN",), "num_steps and num_draft_tokens are None"),
        (("NEXTN", 3, None, 5), "num_draft_tokens is 5, expected 4 for 3 steps with topk 1"),
        (("NEXTN", 0), "num_steps is 0, expected at least 1"),
        (("NEXTN", 3, 0), "topk is 0, expected at least 1"),
        (("NEXTN", None, None, 1), "num_draft_tokens is 1, expected at least 2"),
        (("NEXTN", 3, 4), "num_draft_tokens is None, expected a number with topk 4"),
        (("NEXTN", None, 4, 8), "num_steps is None"),
        (("NEXTN", 1, 4, 6), "expected at most the 5 tokens of 1 steps with topk 4"),
        ((None, 3), "num_steps is 3, expected None without an algorithm"),
    ],
)
def test_contradictions_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        normalise_speculative(*options)

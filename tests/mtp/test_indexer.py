"""Small index_topk: the groups that a query attends to, with and without ties."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mtp.poison import poisoned_runner
from mtp.small_models import CSA, VOCAB_SIZE, build, layout_of, prompts_of
from mtp.truth import LogitsObserver, Truth, forced
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4Indexer

from dsv4_npu_ops.mtp.compressor import select_groups

TOP_K = 6
LENGTHS = [40, 75, 130]


def small_top_k(seed: int, **overrides: object):
    """A target whose queries see more groups than they may keep; many index heads make a score of exactly 0 rare."""
    return build(
        seed, num_hidden_layers=2, layer_types=[CSA, CSA], index_topk=TOP_K, index_n_heads=16,
        mlp_layer_types=["moe", "hash_moe"], **overrides,
    )  # fmt: skip


class SelectionMargin:
    """Watches transformers' indexers: the smallest distance between a score that was kept and one that was not."""

    def __init__(self, target) -> None:
        self.smallest, self.decisions = math.inf, 0
        self._scores: dict[torch.nn.Module, torch.Tensor] = {}
        for module in target.modules():
            if isinstance(module, DeepseekV4Indexer):
                module.scorer.register_forward_hook(self._remember)
                module.register_forward_hook(self._measure, with_kwargs=True)

    def _remember(self, scorer, _args, scores) -> None:
        self._scores[scorer] = scores

    def _measure(self, indexer, args, kwargs, _output) -> None:
        positions = kwargs.get("position_ids", args[2] if len(args) > 2 else None)[0]
        for position, scores in zip(positions.tolist(), self._scores[indexer.scorer][0], strict=True):
            visible = scores[: (position + 1) // 4].sort(descending=True).values
            if len(visible) > indexer.index_topk:
                margin = visible[indexer.index_topk - 1] - visible[indexer.index_topk]
                self.smallest = min(self.smallest, margin.item())
                self.decisions += 1


@pytest.fixture(scope="module")
def watched():
    """A model, prompts, transformers' continuations of them, and the margin of every selection made for those."""
    target, nextn = small_top_k(seed=23)
    margin = SelectionMargin(target)
    prompts = prompts_of(LENGTHS, seed=8)
    truth = Truth(target, 24)
    return target, nextn, prompts, [truth(prompt) for prompt in prompts], margin


def test_selections_are_decided_by_no_near_tie_and_matter(watched):
    target, _, prompts, expected, margin = watched
    assert margin.decisions > 300
    assert margin.smallest > 1e-4
    indexers = [module for module in target.modules() if isinstance(module, DeepseekV4Indexer)]
    for module in indexers:
        module.index_topk = 512
    every_group = Truth(target, 24)(prompts[2])[0]
    for module in indexers:
        module.index_topk = TOP_K
    assert every_group != expected[2][0]


@pytest.mark.parametrize(("chunk", "n", "page_size"), [(16, 4, 16), (None, 1, 128), (37, 7, 64)])
def test_small_top_k_equals_transformers(watched, chunk, n, page_size):
    target, nextn, prompts, expected, _ = watched
    observer = LogitsObserver(expected)
    script = forced([tokens for tokens, _ in expected], lambda r, g, w: 1 + (r + g) % w, VOCAB_SIZE)
    runner = poisoned_runner(target, nextn, layout_of(page_size))
    completions, _ = runner.generate(prompts, 24, n, chunk, script=script, observer=observer)
    assert [completion.tokens for completion in completions] == [tokens for tokens, _ in expected]
    assert observer.worst < 1e-4


def lowest_groups(self, hidden, q_residual, position_ids, cache, layer_idx):
    """What an indexer with equal scores everywhere selects: the lowest visible groups. Keeps its cache going."""
    DeepseekV4Indexer.forward(self, hidden, q_residual, position_ids, cache, layer_idx)
    chosen = torch.arange(self.index_topk).expand(*position_ids.shape, -1)
    # transformers marks a pick beyond the visible groups, or beyond the cached ones, by -1.
    return torch.where(chosen < ((position_ids + 1) // 4).unsqueeze(-1), chosen, -1)


def test_equal_scores_keep_the_lowest_groups():
    target, nextn = small_top_k(seed=22)
    with torch.no_grad():
        for module in target.modules():
            if isinstance(module, DeepseekV4Indexer):
                module.scorer.weights_proj.weight.zero_()
                module.forward = lowest_groups.__get__(module)
    prompts = prompts_of(LENGTHS, seed=9)
    expected = [Truth(target, 16)(prompt) for prompt in prompts]
    observer = LogitsObserver(expected)
    runner = poisoned_runner(target, nextn, layout_of(16))
    completions, _ = runner.generate(prompts, 16, 3, 50, observer=observer)
    assert [completion.tokens for completion in completions] == [tokens for tokens, _ in expected]
    assert observer.worst < 1e-4


@given(data=st.data(), groups=st.integers(1, 12), top_k=st.integers(1, 14))
def test_selection_is_best_first_then_lowest_group(data, groups, top_k):
    scores = data.draw(st.lists(st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0]), min_size=groups, max_size=groups))
    visible = data.draw(st.lists(st.booleans(), min_size=groups, max_size=groups))
    ranked = sorted((g for g in range(groups) if visible[g]), key=lambda g: (-scores[g], g))
    chosen = select_groups(torch.tensor(scores)[None, None], torch.tensor(visible)[None, None], top_k)
    assert chosen[0, 0].tolist() == [g in ranked[:top_k] for g in range(groups)]

"""RoPE rows and tables: vLLM-Ascend's own beside the plug-in's."""

import math

import pytest
import torch

from engines.vllm_ascend.world import BASES, ROPE_DIM, World, differences, ours, snapshot, va


def rows(*args):
    return [snapshot(proxy) for proxy in va.rope.get_cos_and_sin_dsa(*args)]


@pytest.mark.parametrize("dtype", (torch.int64, torch.int32))
@pytest.mark.parametrize("arguments", ((), (True,), (True, 1), (True, 3), (False, 2)))
def test_rows_are_the_engines(arguments, dtype):
    World(0)
    positions = torch.tensor([0, 7, 7, 1099, 3], dtype=dtype)
    theirs = rows(positions, *arguments)
    with ours():
        assert not list(differences(theirs, rows(positions, *arguments)))


def test_named_positions_are_the_engines():
    World(0)
    positions = {"c4": torch.tensor([4, 8])}
    theirs = rows(positions)
    with ours():
        assert not list(differences(theirs, rows(positions)))


def tables():
    World(0)
    by_base = {}
    for ratio in BASES:
        key, _ = va.rope._ROPE_STATE.layer_info[f"layer.{ratio}.attn"]
        by_base[ratio] = [table.clone() for table in va.rope._ROPE_STATE.full_rope_cache[key]]
    return by_base


def test_tables_are_the_engines_unless_deepseeks_are_asked_for(monkeypatch):
    theirs = tables()
    with ours():
        assert not list(differences(theirs, tables()))
        monkeypatch.setenv("DSV4_NPU_OPS_VLLM_ASCEND_ROPE", "deepseek")
        given = tables()
    assert not list(differences(theirs[4], given[4])) and not list(differences(theirs[128], given[128]))
    cos, sin = given[0]
    assert cos.shape == theirs[0][0].shape
    for position in (0, 1, 9, 1000):
        for j in range(ROPE_DIM // 2):
            angle = position / 10000 ** (2 * j / ROPE_DIM)
            for table, expected in ((cos, math.cos(angle)), (sin, math.sin(angle))):
                assert table[position, 0, 0, 2 * j : 2 * j + 2].tolist() == pytest.approx([expected] * 2, abs=1e-4)
    assert not torch.equal(cos, theirs[0][0]), "the engine scales ratio 0 by YaRN's factor"


def test_another_choice_of_tables_is_refused(monkeypatch):
    monkeypatch.setenv("DSV4_NPU_OPS_VLLM_ASCEND_ROPE", "both")
    with (
        ours(),
        pytest.raises(ValueError, match="_ROPE is 'both', expected one of engine, deepseek"),
    ):
        World(0)

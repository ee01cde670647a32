"""Hundreds of short requests through pools that hold a few of them: each gets its own tokens, and nothing is left."""

import random

import pytest
from mtp.small_models import layout_of, prompts_of

from dsv4_npu_ops import KVLayout
from dsv4_npu_ops.layout import POOLS
from dsv4_npu_ops.mtp.runner import Runner

COUNT = 320
SAMPLE = range(0, COUNT, 40)


@pytest.mark.parametrize("overlap", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_many_short_requests_under_pressure(double_model, overlap):
    target, nextn = double_model
    choose = random.Random(11)
    prompts = prompts_of([choose.choice((1, 3, 9, 20, 33)) for _ in range(COUNT)], seed=11)
    new_tokens = [choose.randint(1, 6) for _ in prompts]
    layout = KVLayout(4, 128, 40, 64, {"full": 140, "swa": 125, "c4": 38, "c128": 1, "c4_state": 85, "c128_state": 120})
    runner = Runner(target, nextn, layout, bucket=4)
    completions, stats = runner.generate(
        prompts,
        new_tokens,
        [choose.randint(1, 4) for _ in prompts],
        [choose.choice((6, 12, 64)) for _ in prompts],
        arrivals=[i // 12 for i in range(COUNT)],
        admission="optimistic",
        overlap=overlap,
    )
    assert [len(completion.tokens) for completion in completions] == new_tokens
    assert stats.emitted_tokens == sum(new_tokens)
    assert stats.peak_running > 8
    # Overlapped, a request starts with room for two steps, and reading what is in flight makes room, too.
    assert overlap or stats.retractions > 10
    assert all(runner.allocator.available_pages(pool) == layout.num_pages[pool] for pool in POOLS)
    assert all(not runner.tables.table(pool).any() for pool in POOLS)

    alone = Runner(target, nextn, layout_of(16, max_requests=1, max_context_len=64))
    for i in SAMPLE:
        expected, _ = alone.generate([prompts[i]], new_tokens[i])
        assert completions[i].tokens == expected[0].tokens

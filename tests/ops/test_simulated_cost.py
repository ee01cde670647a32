"""What the device kernels move and do in the simulator, at the shapes of bench/cost_cases.py, stays within limits."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

import cost_cases
import simulated_cost

pytestmark = pytest.mark.simulated_only

OPS = sorted({build.__name__ for build, _ in cost_cases.LARGE})


@pytest.mark.parametrize("op", OPS)
def test_costs_stay_within_limits(ascend_sim, op):
    for cost in simulated_cost.run_cases([op], ascend_sim):
        assert simulated_cost.breaches(cost) == []


# One request's pages are too few to share when an entry stands for a page.
FEW = (cost_cases.c4_slots_from_full, cost_cases.release_pages, cost_cases.share_pages)
LONG = [case for case in cost_cases.LARGE if case[1][0] == 1 and case[0] not in FEW]


@pytest.mark.parametrize("build, arguments", LONG, ids=[build.__name__ for build, _ in LONG])
def test_one_long_request_takes_many_cores(ascend_sim, build, arguments):
    assert simulated_cost.cost_of(build(*arguments), ascend_sim).blocks > simulated_cost.LARGE_BLOCKS / 2


def test_a_step_at_a_million_tokens_moves_little_more_than_it_must(ascend_sim):
    costs = simulated_cost.long_steps(ascend_sim)
    assert costs["pages"].digest == costs["slots"].digest
    assert costs["pages"].blocks_traffic <= simulated_cost.MOST_LONG_TRAFFIC < costs["slots"].blocks_traffic


def test_naive_kernels_write_the_same_bytes_with_more_scalar_work(ascend_sim):
    ours, naive = simulated_cost.run_cases([], ascend_sim, small=True), simulated_cost.naive_costs([], small=True)
    assert {cost.op for cost in ours} == set(OPS)
    assert [cost.digest for cost in ours] == [cost.digest for cost in naive]
    for mine, other in zip(ours, naive, strict=True):
        assert mine.scalars_per_element < other.scalars_per_element + other.gm_scalars_per_element

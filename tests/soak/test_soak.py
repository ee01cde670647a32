"""The soak's short form; `make soak` runs a million steps."""

from collections import Counter

from soak.batch_engine import PAGE_SIZES
from soak.run import soak_one_cache

STEPS_PER_PAGE_SIZE = 70
EVENTS = ("prefills", "verifies", "received", "shared", "retracted", "cancelled", "restored", "compared", "exhausted")


def test_a_continuous_batch_loses_and_leaks_nothing():
    events = Counter()
    for seed in range(len(PAGE_SIZES)):
        events += soak_one_cache(seed, STEPS_PER_PAGE_SIZE)
    for event in EVENTS:
        assert events[event] > 3, f"too few {event} to mean anything: {events}"

"""Random sequences of calls against the plain-Python model; every invariant is checked after every call."""

import pytest
from backends import NPU
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from cache.allocator_actions import PAGE_SIZES, AllocatorActions, small_allocator


def state_machine(page_size):
    class AllocatorMachine(RuleBasedStateMachine):
        @initialize(data=st.data())
        def start(self, data):
            self.actions = AllocatorActions(None, None)
            self.choose_from(data)
            self.actions.checked = small_allocator(page_size, self.actions.integer)

        def choose_from(self, data):
            self.actions.integer = lambda low, high: data.draw(st.integers(low, high))

        def teardown(self):
            if hasattr(self, "actions") and self.actions.checked is not None:
                self.actions.checked.finish()

    def as_rule(name):
        def step(self, data):
            self.choose_from(data)
            getattr(self.actions, name)()

        return rule(data=st.data())(step)

    for name in (
        "extend",
        "reserve",
        "accept",
        "decode",
        "share",
        "evict",
        "free",
        "backup",
        "restore",
        "discard",
        "anything",
    ):
        setattr(AllocatorMachine, name, as_rule(name))
    return AllocatorMachine


@pytest.mark.hypothesis
@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_random_sequences_agree_with_the_model(page_size):
    run_state_machine_as_test(
        state_machine(page_size),
        settings=settings(
            max_examples=6 if NPU else 30,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

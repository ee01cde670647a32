"""The order checker against a model: for random programs it complains exactly when two conflicting accesses are
unordered in a graph built step by step from what flags and barriers promise."""

from __future__ import annotations

import numpy as np
from ascend_sim.simulator import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

S, V, MTE2, MTE3, ALL = range(5)
READ, WRITE, VECTOR, LOAD, STORE, SET, WAIT, BARRIER = range(8)
EVENTS = [
    (MTE2, V),
    (V, MTE2),
    (MTE3, V),
    (V, MTE3),
    (MTE2, MTE3),
    (MTE3, MTE2),
    (S, V),
    (V, S),
    (S, MTE2),
    (MTE2, S),
    (S, MTE3),
    (MTE3, S),
]
BUFFERS = 2
Step = tuple[int, int, int]


ACCESSES = {S: [READ, WRITE], V: [VECTOR], MTE2: [LOAD], MTE3: [STORE]}


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    """Programs whose flags are legal: never set twice, never waited for in vain, none left set.

    Mostly one chain of accesses that hops from pipe to pipe by flags, so that orders through third pipes matter,
    with stray accesses, barriers and flags that are waited for late.
    """
    steps: list[Step] = []
    flags: list[tuple[int, int]] = []
    buffer = st.integers(0, BUFFERS - 1)
    pipe = draw(st.sampled_from([S, V, MTE2, MTE3]))
    for _ in range(draw(st.integers(2, 14))):
        move = draw(st.sampled_from(["access", "access", "hop", "hop", "hop", "stray", "set", "wait", "barrier"]))
        if move in ("access", "stray"):
            on = pipe if move == "access" else draw(st.sampled_from([S, V, MTE2, MTE3]))
            steps.append((draw(st.sampled_from(ACCESSES[on])), draw(buffer), draw(buffer)))
        elif move == "hop":
            event = draw(st.sampled_from([i for i, (source, _) in enumerate(EVENTS) if source == pipe]))
            steps += [(SET, event, 2), (WAIT, event, 2)]
            pipe = EVENTS[event][1]
        elif move == "set":
            flag = (draw(st.integers(0, len(EVENTS) - 1)), draw(st.integers(0, 1)))
            if flag not in flags:
                flags.append(flag)
                steps.append((SET, *flag))
        elif move == "wait" and flags:
            steps.append((WAIT, *flags.pop(draw(st.integers(0, len(flags) - 1)))))
        elif move == "barrier":
            steps.append((BARRIER, draw(st.sampled_from([V, MTE2, MTE3, ALL])), 0))
    steps += [(WAIT, *flag) for flag in flags]
    return steps


def accesses(step: Step) -> tuple[int, list[tuple[int, bool]]]:
    """Pipe of a step, and the buffers that it touches: (buffer, writes)."""
    operation, a, b = step
    return {
        READ: (S, [(a, False)]),
        WRITE: (S, [(a, True)]),
        VECTOR: (V, [(a, True), (b, False)]),
        LOAD: (MTE2, [(a, True)]),
        STORE: (MTE3, [(a, False)]),
    }[operation]


def unordered_conflicts(steps: list[Step]) -> list[tuple[int, int]]:
    """Build 'finished before' edges from the rules, close them, and look at every pair of conflicting accesses.

    Returns:
        (earlier step, later step) of each conflict that nothing orders, by the later step.
    """
    count = len(steps)
    before = np.zeros((count, count), dtype=bool)
    is_access = [step[0] <= STORE for step in steps]
    pipe_of = [
        accesses(step)[0]
        if step[0] <= STORE
        else EVENTS[step[1]][0]
        if step[0] == SET
        else EVENTS[step[1]][1]
        if step[0] == WAIT
        else step[1]
        for step in steps
    ]
    last_set: dict[tuple[int, int], int] = {}
    for later, (operation, a, b) in enumerate(steps):
        for earlier in range(later):
            same_pipe = pipe_of[earlier] == pipe_of[later]
            if steps[earlier][0] == WAIT and (same_pipe or pipe_of[earlier] == S):
                before[earlier, later] = True  # a waiting queue holds what follows; a waiting S holds everything
            if steps[earlier][0] == BARRIER and (same_pipe or pipe_of[earlier] == ALL):
                before[earlier, later] = True
            if operation == SET and same_pipe:
                before[earlier, later] = True  # a flag is set when all before it in its pipe is finished
            if operation == BARRIER and (same_pipe or a == ALL):
                before[earlier, later] = True
            if is_access[earlier] and is_access[later] and same_pipe and pipe_of[later] == S:
                before[earlier, later] = True
        if operation == SET:
            last_set[a, b] = later
        if operation == WAIT:
            before[last_set[a, b], later] = True
    for middle in range(count):
        before |= np.outer(before[:, middle], before[middle, :])
    return [
        (earlier, later)
        for later in range(count)
        for earlier in range(later)
        if is_access[earlier] and is_access[later] and not before[earlier, later]
        if any(
            buffer == other and (writes or other_writes)
            for buffer, writes in accesses(steps[later])[1]
            for other, other_writes in accesses(steps[earlier])[1]
        )
    ]


def with_compilers_flags(steps: list[Step]) -> list[Step]:
    """The program as automatic synchronisation leaves it: a V barrier between two vector instructions that conflict, a
    flag of its own between an instruction and a scalar access, set right after the first and waited for right before
    the second."""
    number = 100
    while True:
        for earlier, later in unordered_conflicts(steps):
            pipes = accesses(steps[earlier])[0], accesses(steps[later])[0]
            if pipes == (V, V):
                steps = [*steps[:later], (BARRIER, V, 0), *steps[later:]]
                break
            if S in pipes:
                number += 1
                flag = (EVENTS.index(pipes), number)
                middle = steps[earlier + 1 : later]
                steps = [*steps[: earlier + 1], (SET, *flag), *middle, (WAIT, *flag), *steps[later:]]
                break
        else:
            return steps


def found_by_simulator(sim: Simulator, steps: list[Step]) -> bool:
    program = np.array(steps, dtype=np.int32).reshape(-1, 3)
    data, sink = np.zeros(8, dtype=np.int32), np.zeros((len(steps), 8), dtype=np.int32)
    sim.clear_memory()
    sim.clear_errors()
    sim.register(data.ctypes.data, data.nbytes, "data")
    sim.register(sink.ctypes.data, sink.nbytes, "sink")
    sim.launch("random_program", 1, program.ctypes.data, data.ctypes.data, sink.ctypes.data, len(steps))
    kinds = {error.kind for error in sim.errors()}
    assert kinds <= {"order.raw", "order.war", "order.waw"}
    return bool(kinds)


@settings(max_examples=300)
@given(steps=programs())
def test_checker_agrees_with_the_model(sim: Simulator, steps: list[Step]) -> None:
    assert found_by_simulator(sim, steps) == bool(unordered_conflicts(steps))


@settings(max_examples=300)
@given(steps=programs())
def test_checker_agrees_with_the_model_of_automatic_synchronisation(sim: Simulator, steps: list[Step]) -> None:
    sim.configure(strict=False)
    assert found_by_simulator(sim, steps) == bool(unordered_conflicts(with_compilers_flags(steps)))

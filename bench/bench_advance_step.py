"""From accepted lengths to the next step against its torch formulation."""

from collections.abc import Iterator

import torch
from harness import Case
from torch_step import committed_lengths, filled_tables, slot_tables

import dsv4_npu_ops


def advance_case(batch: int, context: int, width: int, hidden: int | None) -> Case:
    """A verify of ``width`` tokens a request, with hidden states of ``hidden`` bfloat16 elements a token."""
    tables = filled_tables(batch, context + 2 * width)
    requests, lengths = committed_lengths(batch, context)
    slots = slot_tables(tables)
    accepted = torch.arange(batch) % width + 1
    tokens = torch.arange(batch * width)
    states = None if hidden is None else torch.randn(batch * width, hidden).bfloat16()
    out = dsv4_npu_ops.advance_step(
        tables, requests, lengths, accepted, tokens, num_draft_tokens=width, hidden_states=states
    )

    slots = slot_tables(tables)

    def op_by_op() -> None:
        live = lengths > 0
        widths = torch.where(live, accepted, 0)
        after = lengths + widths
        last = torch.arange(batch) * width + accepted - 1
        last = torch.where(live, last, 0)
        torch.where(live, tokens[last], 0)
        torch.where(live, after, 0)
        torch.where(live, slots["full"][requests, after], 0)
        torch.where(live, slots["swa"][requests, after], 0)
        if states is not None:
            torch.where(live[:, None], states[last], 0)

    return Case(
        "advance_step",
        f"B={batch} L<={context} n={width} hidden {hidden or 'none'} (out=)",
        lambda: dsv4_npu_ops.advance_step(
            tables, requests, lengths, accepted, tokens, num_draft_tokens=width, hidden_states=states, out=out
        ),
        op_by_op,
        "an operator a step",
    )


def cases() -> Iterator[Case]:
    """A usual batch with and without hidden states, and a large one."""
    yield advance_case(64, 8192, 4, None)
    yield advance_case(64, 8192, 4, 7168)
    yield advance_case(1024, 1024, 4, None)

"""Plain-Python oracle of what a verify leaves for the next step: one row at a time, straight from docs/spec.md."""

from dataclasses import dataclass
from itertools import takewhile

from reference.step import slot_of


@dataclass
class Verified:
    """One row: its inputs are [first, first + width) of the step's. judged: accepted length, or the samples as they are
    packed; drafts: how many of the last inputs were guesses, or None."""

    request: int
    seq_len: int
    first: int
    width: int
    judged: int | list[int]
    drafts: int | None = None
    backup: int = 0


def advance_step(pools, rows, context, *, tokens=None, final=False, dummies=(0, 0), hidden=None, hidden_elems=0):
    """tokens: those sampled after each input, where accepted lengths are given. hidden: one list an input.

    Returns a dict of lists under the names of the fields; slots of the pools full and swa where they exist.
    """
    names = ["seq_lens", "extend_lens", "token_ids", "positions", "sampled_index", "valid_counts", "rejected_lens"]
    result = {name: [] for name in names}
    result |= {f"out_{pool}_loc": [] for pool in ("full", "swa") if pool in pools}
    result["hidden_states"] = None if hidden is None else []
    for row in rows:
        live = row.seq_len > 0
        samples = row.judged if isinstance(row.judged, list) else None
        valid = list(takewhile(lambda sample: sample >= 0, samples)) if samples is not None else None
        count = row.judged if samples is None else len(valid)
        # Who sat out has inputs only if somebody says so.
        has_inputs = live and (count > 0 or final or row.drafts is not None)
        inputs = list(range(row.first, row.first + row.width)) if has_inputs else []
        # The guesses are the last inputs; the one before them is judged with them.
        judged = len(inputs) if row.drafts is None else row.drafts + 1 if row.drafts else 0
        certain = inputs[: len(inputs) - judged]
        kept = certain + inputs[len(certain) :][: count if judged else 0]
        length = 0 if not live else row.seq_len - len(inputs) if final else row.seq_len
        length += len(kept)
        newest = row.backup
        if count and live:
            newest = valid[-1] if samples is not None else tokens[kept[-1]]
        drafts = bool(kept) and length < context
        result["seq_lens"].append(length)
        result["extend_lens"].append(len(kept))
        result["token_ids"].append(newest if live else 0)
        result["positions"].append(length if drafts else 0)
        result["sampled_index"].append(kept[-1] if kept else 0)
        result["valid_counts"].append(count if live else 0)
        result["rejected_lens"].append(len(inputs) - len(kept))
        for pool, dummy in zip(("full", "swa"), dummies, strict=True):
            if pool in pools:
                slot = slot_of(pools, pool, row.request, length) if drafts else None
                result[f"out_{pool}_loc"].append(dummy if slot is None else slot)
        if hidden is not None:
            result["hidden_states"].append(hidden[kept[-1]] if kept else [0.0] * hidden_elems)
    return result

"""The opt-in check that a step has slots (docs/spec.md, errors): without it, what was not reserved has slot 0."""

from itertools import repeat

from torch import Tensor

from dsv4_npu_ops.graph_capture import is_capturing
from dsv4_npu_ops.layout.kv_layout import POOLS, RAW_TOKENS_PER_SLOT
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.ops.step_sizes import FORM_DECODE, FORM_PREFILL

_WINDOWED = ("swa", "c4_state", "c128_state")


def check_reserved(
    op: str,
    tables: RequestTables,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    operands: Tensor | None,
    form: int,
    width: int,
) -> None:
    """Checks that every new token and completed group of a step has a slot, where ``tables.check_reserved`` is set.

    A prefill keeps only the tail of windows and states: of these its last token is looked at. Rows that the op itself
    refuses are left to it. Inside a graph capture nothing is checked.

    Args:
        operands: prefixes of a prefill or widths of a ragged verify.

    Raises:
        ValueError: naming the row, its first position without a slot, and the call that was forgotten.
    """
    if not tables.check_reserved or is_capturing():
        return
    rows = zip(
        req_pool_indices.tolist(),
        seq_lens.tolist(),
        repeat(width) if operands is None else operands.tolist(),
        strict=False,
    )
    for row, (request, length, operand) in enumerate(rows):
        begin, end = _new_tokens(form, length, operand, tables.layout.max_context_len)
        if begin < end and 0 <= request < tables.layout.max_requests:
            _check_row(op, tables, row, request, begin, end, form)


def _new_tokens(form: int, length: int, operand: int, max_context_len: int) -> tuple[int, int]:
    if form == FORM_PREFILL:
        return max(0, operand), min(length, max_context_len)
    if form == FORM_DECODE:
        return max(0, length - 1), min(length, max_context_len)
    return length, min(length + operand, max_context_len) if length > 0 else length


def _check_row(op: str, tables: RequestTables, row: int, request: int, begin: int, end: int, form: int) -> None:
    for pool in filter(tables.layout.has_pool, POOLS):
        tokens = RAW_TOKENS_PER_SLOT[pool]
        first, last = begin // tokens, end // tokens
        if form == FORM_PREFILL and pool in _WINDOWED:
            first = last - 1
        slots = getattr(tables, pool)[request, first:last].tolist()
        if 0 in slots:
            method = "alloc_extend" if form == FORM_PREFILL else "reserve_extend"
            raise ValueError(
                f"{op}: req_pool_indices[{row}] is {request}, which has no {pool} slot at position "
                f"{(first + slots.index(0)) * tokens}, expected {method}([{request}], [{begin}], [{end}]) "
                "before the step"
            )

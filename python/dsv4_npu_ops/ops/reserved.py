"""The opt-in check that a step has slots (docs/spec.md, errors): without it, what was not reserved has no slot."""

from collections.abc import Collection, Iterator
from itertools import pairwise, repeat

from torch import Tensor

from dsv4_npu_ops.graph_capture import is_capturing
from dsv4_npu_ops.layout.kv_layout import POOLS, RAW_TOKENS_PER_SLOT, WINDOWED_POOLS
from dsv4_npu_ops.layout.pool_address import DividedSlots, MappedSlots, PageRing, PageTable, SlotTable
from dsv4_npu_ops.layout.step_rows import COMMITTED, COMMITTED_RAGGED, FINAL_OFFSETS, PREFILL, StepRows
from dsv4_npu_ops.layout.tables import RequestTables


def check_reserved(
    op: str,
    tables: RequestTables,
    rows: StepRows,
    req_pool_indices: Tensor | None,
    pools: Collection[str] = POOLS,
) -> None:
    """Checks that every new token and completed group of a step has a slot: that its page, where the table is one of
    pages, is the request's.

    Prefill chunks keep only the tail of windows and states: where rows may be such, their last token is looked at.
    Rows that the op itself refuses are left to it. Inside a graph capture nothing is checked.

    Raises:
        ValueError: naming the row, its first position without a slot, and the call that was forgotten.
    """
    if is_capturing():
        return
    spans = list(_new_tokens(rows, tables.max_context_len))
    requests = range(len(spans)) if req_pool_indices is None else req_pool_indices.tolist()
    for row, (request, (begin, end)) in enumerate(zip(requests, spans, strict=False)):
        if begin < end and 0 <= request < tables.max_requests:
            for pool in POOLS:
                if pool in pools and tables.has_pool(pool):
                    named = f"row {row} has"
                    if req_pool_indices is not None:
                        named = f"req_pool_indices[{row}] is {request}, which has"
                    _check_row(op, tables, pool, rows.form, named, request, begin, end)


def _new_tokens(rows: StepRows, max_context_len: int) -> Iterator[tuple[int, int]]:
    """First new token of each row, and the one behind its last."""
    operands = repeat(rows.width) if rows.operand is None else rows.operand.tolist()
    if rows.form == FINAL_OFFSETS:
        operands = [end - begin for begin, end in pairwise(operands)]
    for length, operand in zip(rows.seq_lens.tolist(), operands, strict=False):
        if rows.form == PREFILL:
            begin, end = operand, length
        elif rows.form in (COMMITTED, COMMITTED_RAGGED):
            begin, end = length, length + operand if length > 0 else length
        else:
            begin, end = length - operand, length
        yield max(0, begin), min(end, max_context_len)


def _check_row(
    op: str, tables: RequestTables, pool: str, form: int, row: str, request: int, begin: int, end: int
) -> None:
    tokens = RAW_TOKENS_PER_SLOT[pool]
    first, last = begin // tokens, end // tokens
    if pool in WINDOWED_POOLS and form not in (COMMITTED, COMMITTED_RAGGED):
        first = last - 1
    for unit, slot in zip(range(first, last), _slots(tables, pool, request, range(first, last)), strict=True):
        if slot is None:
            forgotten = "alloc_extend" if form == PREFILL or begin == 0 else "reserve_extend"
            # An engine's tables have an allocator of its own.
            call = "one" if tables.layout is None else f"{forgotten}([{request}], [{begin}], [{end}])"
            raise ValueError(f"{op}: {row} no {pool} slot at position {unit * tokens}, expected {call} before the step")


def _slots(tables: RequestTables, pool: str, request: int, units: range) -> list[int | None]:
    """The slot of each unit by the pool's address, or the one that a rule makes it of; None where it has none. Rings of
    a request never lack one."""
    address = tables.pools[pool]
    if isinstance(address, PageTable):
        pages, size = address.table[request].tolist(), address.page_size
        entries = [(pages[unit // size % len(pages)], unit % size) for unit in units]
        return [page * size + offset if page > 0 else None for page, offset in entries]
    if isinstance(address, SlotTable):
        return [slot if slot > 0 else None for slot in address.table[request, units.start : units.stop].tolist()]
    if isinstance(address, DividedSlots):
        tokens = RAW_TOKENS_PER_SLOT[pool]
        return [_slots(tables, address.base, request, range(u * tokens, (u + 1) * tokens))[-1] for u in units]
    if isinstance(address, MappedSlots | PageRing):
        slots = _slots(tables, address.base, request, units)
        if isinstance(address, PageRing):
            return slots
        mapping = address.mapping.tolist()
        # A slot behind the mapping is left to the op.
        return [slot if slot is not None and (slot >= len(mapping) or mapping[slot] > 0) else None for slot in slots]
    return [0] * len(units)

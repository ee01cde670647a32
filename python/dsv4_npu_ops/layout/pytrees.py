"""Tables, rows and results as trees of tensors, so that compiled and exported functions take and return them.

Without this a table is a constant of an exported program: what it held when the program was made.

Source: docs/compile.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from dsv4_npu_ops.layout.advanced_step import AdvancedStep
from dsv4_npu_ops.layout.batch_page_table import BatchPageTable
from dsv4_npu_ops.layout.compress_metadata import CompressMetadata
from dsv4_npu_ops.layout.compressor_metadata import CompressorMetadata
from dsv4_npu_ops.layout.draft_steps import DraftSteps
from dsv4_npu_ops.layout.kv_layout import POOLS, KVLayout
from dsv4_npu_ops.layout.out_cache_loc import OutCacheLoc
from dsv4_npu_ops.layout.pool_address import (
    DividedSlots,
    MappedSlots,
    PageRing,
    PageTable,
    PoolAddress,
    RequestBank,
    RequestRing,
    SlotTable,
    table_of,
)
from dsv4_npu_ops.layout.shared_prefix import SharedPrefix
from dsv4_npu_ops.layout.step import Step
from dsv4_npu_ops.layout.step_rows import StepRows
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.layout.verify_step import VerifyStep

RESULTS = (AdvancedStep, CompressMetadata, CompressorMetadata, DraftSteps, OutCacheLoc, SharedPrefix, Step, VerifyStep)
WITH_TENSOR = (PageTable, SlotTable, MappedSlots)
ADDRESSES = (PageTable, SlotTable, DividedSlots, MappedSlots, PageRing, RequestRing, RequestBank)

Context = tuple[Any, ...]
"""What is no tensor, in plain values: two programs and a file compare and keep it."""


def register() -> None:
    """Tells torch of the types; once, when they are imported."""
    # An exported program's file holds example inputs, which are loaded like weights: plain data of known types only.
    torch.serialization.add_safe_globals([BatchPageTable, RequestTables, KVLayout, StepRows, *ADDRESSES, *RESULTS])
    for result in RESULTS:
        pytree.register_dataclass(result, serialized_type_name=_name(result))
    pytree.register_pytree_node(
        StepRows,
        lambda rows: ([rows.seq_lens, rows.operand], (rows.form, rows.width)),
        lambda tensors, context: _rows(*tensors, *context),
        serialized_type_name=_name(StepRows),
        to_dumpable_context=list,
        from_dumpable_context=tuple,
        flatten_with_keys_fn=lambda rows: (
            [(pytree.GetAttrKey("seq_lens"), rows.seq_lens), (pytree.GetAttrKey("operand"), rows.operand)],
            (rows.form, rows.width),
        ),
    )
    pytree.register_pytree_node(
        BatchPageTable,
        lambda table: ([table.table, table.first_pages], (table.page_size, table.ratio, table.lowest_page)),
        lambda tensors, numbers: _batch_page_table(*tensors, *numbers),
        serialized_type_name=_name(BatchPageTable),
        to_dumpable_context=list,
        from_dumpable_context=tuple,
        flatten_with_keys_fn=lambda table: (
            [(pytree.GetAttrKey("table"), table.table), (pytree.GetAttrKey("first_pages"), table.first_pages)],
            (table.page_size, table.ratio, table.lowest_page),
        ),
    )
    pytree.register_pytree_node(
        RequestTables,
        lambda tables: (list(_tensors(tables).values()), _context(tables)),
        _tables,
        serialized_type_name=_name(RequestTables),
        to_dumpable_context=list,
        from_dumpable_context=_from_file,
        flatten_with_keys_fn=lambda tables: (
            # Not attributes: torch.export replaces names in text, and "c4" is a beginning of "c4_state".
            [(pytree.MappingKey(pool), table) for pool, table in _tensors(tables).items()],
            _context(tables),
        ),
    )


def _name(kind: type) -> str:
    """The same wherever a type moves to, because files keep it."""
    return f"dsv4_npu_ops.{kind.__name__}"


def _rows(seq_lens: Any, operand: Any, form: int, width: int) -> StepRows:
    return StepRows(seq_lens, form, operand, width)


def _batch_page_table(table: Any, first_pages: Any, page_size: int, ratio: int, lowest_page: int) -> BatchPageTable:
    return BatchPageTable(table, page_size, ratio, first_pages, lowest_page)


def _tensors(tables: RequestTables) -> dict[str, Tensor | None]:
    """The tensor of each pool that has one of its own."""
    return {pool: table_of(address) for pool, address in tables.pools.items() if isinstance(address, WITH_TENSOR)}


def _context(tables: RequestTables) -> Context:
    """Sizes, what the layout has beyond them, and the address of each pool: its kind and its numbers."""
    layout = tables.layout
    own = None
    if layout is not None:
        page_size = _in_order(layout.page_size) if isinstance(layout.page_size, Mapping) else layout.page_size
        pages, rings = _in_order(layout.num_pages), _in_order(layout.ring_columns)
        own = (page_size, layout.max_requests, pages, str(layout.device), rings)
    return (
        tables.sliding_window,
        tables.max_context_len,
        own,
        tuple((pool, *_numbers(address)) for pool, address in tables.pools.items()),
    )


def _in_order(numbers: Mapping[str, int]) -> Context:
    return tuple((pool, numbers[pool]) for pool in POOLS if pool in numbers)


def _numbers(address: PoolAddress) -> Context:
    """Kind and arguments of an address, without its tensor."""
    numbers = [field.name for field in fields(address)][isinstance(address, WITH_TENSOR) :]
    return (type(address).__name__, *((name, getattr(address, name)) for name in numbers))


def _tables(tensors: Iterable[Any], context: Context) -> RequestTables:
    """The tensors may be anything: torch also puts placeholders into trees."""
    sliding_window, max_context_len, own, addresses = context
    left = iter(tensors)
    pools: dict[str, PoolAddress] = {}
    for pool, kind, *numbers in addresses:
        made = next(kept for kept in ADDRESSES if kept.__name__ == kind)
        tensor = [next(left)] if made in WITH_TENSOR else []
        pools[pool] = made(*tensor, **dict(numbers))
    layout = None
    if own is not None:
        page_size, max_requests, num_pages, device, rings = own
        layout = KVLayout(
            dict(page_size) if isinstance(page_size, tuple) else page_size,
            sliding_window,
            max_requests,
            max_context_len,
            dict(num_pages),
            device,
            dict(rings),
        )
    return RequestTables.unchecked(pools, sliding_window, max_context_len, layout, False)


def _from_file(values: list[Any]) -> Context:
    """Lists of a file were tuples."""

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return tuples(values)


register()

"""Tables and results as trees of tensors, so that compiled and exported functions take and return them.

Without this a table is a constant of an exported program: what it held when the program was made.

Source: docs/compile.md.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from dsv4_npu_ops.layout.advanced_step import AdvancedStep
from dsv4_npu_ops.layout.compress_metadata import CompressMetadata
from dsv4_npu_ops.layout.draft_steps import DraftSteps
from dsv4_npu_ops.layout.kv_layout import POOLS, KVLayout
from dsv4_npu_ops.layout.out_cache_loc import OutCacheLoc
from dsv4_npu_ops.layout.shared_prefix import SharedPrefix
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.layout.verify_step import VerifyStep

RESULTS = (AdvancedStep, CompressMetadata, DraftSteps, OutCacheLoc, SharedPrefix, VerifyStep)

Context = tuple[Any, ...]
"""What of tables is no tensor, in plain values: two programs and a file compare and keep it."""


def register() -> None:
    """Tells torch of the types; once, when they are imported."""
    # An exported program's file holds example inputs, which are loaded like weights: plain data of known types only.
    torch.serialization.add_safe_globals([RequestTables, KVLayout, *RESULTS])
    for result in RESULTS:
        pytree.register_dataclass(result, serialized_type_name=_name(result))
    pytree.register_pytree_node(
        RequestTables,
        lambda tables: (list(tables.in_order()), _context(tables)),
        _tables,
        serialized_type_name=_name(RequestTables),
        to_dumpable_context=list,
        from_dumpable_context=_from_file,
        flatten_with_keys_fn=lambda tables: (
            # Not attributes: torch.export replaces names in text, and "c4" is a beginning of "c4_state".
            [(pytree.MappingKey(pool), table) for pool, table in zip(POOLS, tables.in_order(), strict=True)],
            _context(tables),
        ),
    )


def _name(kind: type) -> str:
    """The same wherever a type moves to, because files keep it."""
    return f"dsv4_npu_ops.{kind.__name__}"


def _context(tables: RequestTables) -> Context:
    layout = tables.layout
    pages = tuple((pool, layout.num_pages[pool]) for pool in POOLS if layout.has_pool(pool))
    sizes = (layout.page_size, layout.sliding_window, layout.max_requests, layout.max_context_len)
    return (*sizes, pages, str(layout.device))


def _tables(tables: Iterable[Tensor], context: Context) -> RequestTables:
    page_size, sliding_window, max_requests, max_context_len, pages, device = context
    layout = KVLayout(page_size, sliding_window, max_requests, max_context_len, dict(pages), device)
    return RequestTables.of(layout, tables)


def _from_file(values: list[Any]) -> Context:
    *sizes, pages, device = values
    return (*sizes, tuple(map(tuple, pages)), device)


register()

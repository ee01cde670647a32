"""Slots with an entry for each token of a step: wrapper and fake kernel of the op of this name."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dsv4_npu_ops.layout.batch_page_table import BatchPageTable
from dsv4_npu_ops.layout.buffers import INT64, empty_tensors
from dsv4_npu_ops.ops.caller_errors import caller_errors
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only

_slots = torch.ops.dsv4_npu_ops.token_slots.default


@caller_errors(
    {
        "page_tables": "tables",
        "page_sizes": "page_size of tables",
        "ratios": "ratio of tables",
        "lowest_pages": "lowest_page of tables",
    },
    out={"slots": "out"},
)
def token_slots(
    cu_seqlens: Tensor,
    seq_lens: Tensor,
    tables: Sequence[BatchPageTable],
    num_tokens: int,
    num_reqs: int,
    *,
    out: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """Slots of a step in several tables, aligned with its tokens, in one launch.

    Request i brings the tokens ``cu_seqlens[i] .. cu_seqlens[i + 1]`` of the token tensor and has ``seq_lens[i]`` with
    them. A token at position p that ends a unit of a table, ``(p + 1) % ratio == 0``, has the slot of that unit
    ``u = p // ratio``: ``table[i, u // page_size - first_pages[i]] * page_size + u % page_size``. Every other token has
    -1, and so have one whose page is none, left out of the row or behind its columns, those of a request of length
    0, and entries that no request names.

    Args:
        cu_seqlens: ``[>= num_reqs + 1]`` int32 or int64, not negative and not decreasing.
        seq_lens: ``[>= num_reqs]`` int32 or int64, tokens with those of the step; 0 for padding.
        tables: at most 8.
        num_tokens: entries of each result.
        num_reqs: requests that are read; what the tensors hold beyond it is not looked at.
        out: a buffer for each table, int64 ``[num_tokens]`` or longer, contiguous, all equally long; overwritten to the
            last entry. Nothing is allocated.

    Returns:
        ``out``, or int64 ``[num_tokens]`` for each table.

    Raises:
        ValueError: wrong dtype, shape, device or strides, or a page size or ratio that is no power of two; on a CPU
            also bad ``cu_seqlens``, a length shorter than its tokens, and slots beyond int32. Nothing was written.

    Source: docs/spec.md, token slots.
    """
    for i, table in enumerate(tables):
        if not isinstance(table, BatchPageTable):
            kind = type(table).__name__
            raise ValueError(f"token_slots: tables[{i}] is a {kind}, expected a BatchPageTable")
    if num_tokens < 0:
        raise ValueError(f"token_slots: num_tokens is {num_tokens}, expected at least 0")
    if out is None:
        slots = empty_tensors([(INT64, num_tokens)] * len(tables), cu_seqlens.device)
    else:
        slots = list(out)
        if slots and slots[0].dim() == 1 and slots[0].shape[0] < num_tokens:
            raise ValueError(f"token_slots: out[0] has {slots[0].shape[0]} entries, expected {num_tokens} (num_tokens)")
    first_pages = [table.first_pages for table in tables if table.first_pages is not None]
    shortened = iter(range(len(first_pages)))
    _slots(
        cu_seqlens,
        seq_lens,
        [table.table for table in tables],
        first_pages,
        [-1 if table.first_pages is None else next(shortened) for table in tables],
        [table.page_size for table in tables],
        [table.ratio for table in tables],
        [table.lowest_page for table in tables],
        num_reqs,
        slots,
    )
    return slots


fake_kernel("token_slots")(writes_only)

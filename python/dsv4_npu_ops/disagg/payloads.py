"""The pages of one request that travel, and the copies that two ends agree on.

Source: docs/spec.md, prefill-decode disaggregation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4_npu_ops.disagg.components import ComponentMismatch, StateComponent, StateType, match_components
from dsv4_npu_ops.layout import POOLS, RequestTables

Payload = Mapping[StateType, Sequence[int]]
"""Page ids of one request by kind of state, ascending by page index; an empty list where nothing is due."""

_POOLS = ("swa", "c4", "c128", "c4_state", "c128_state")
_POOL_OF = {kind: "c4" if kind is StateType.INDEXER else kind.value for kind in StateType}


def state_payloads(
    tables: RequestTables, request: int, seq_len: int, prefix_len: int = 0
) -> dict[StateType, list[int]]:
    """The pages that a request of ``seq_len`` committed tokens needs to go on elsewhere.

    KV (``c4``, ``c128``, ``indexer`` and what is live of ``swa``) starts behind the receiver's prefix; state never
    does. The sender calls it with its tables and the receiver with its own, for the same two lengths: the lists then
    have the same length and belong together entry by entry.

    Page ids are read from the tables, which is one device-to-host copy: for the end of a prefill, not for a step.

    Args:
        tables: the request tables of either end, tables of pages in every pool.
        request: request id, ``0 <= request < max_requests``.
        seq_len: committed tokens.
        prefix_len: tokens whose KV the receiver has already, at most ``seq_len``.

    Returns:
        for every ``StateType``, in order, the page ids; ``[]`` where nothing is due and for pools that the layout does
        not have.

    Raises:
        ValueError: an argument out of range, or a page that is due and not in the tables (evicted or never allocated).

    Source: docs/spec.md, prefill-decode disaggregation.
    """
    page_tables, page_sizes = tables.page_tables
    max_requests = page_tables[0].shape[0] if page_tables else 0
    if not 0 <= request < max_requests:
        raise ValueError(f"state_payloads: request is {request}, expected 0 to {max_requests - 1}")
    if seq_len > tables.max_context_len:
        raise ValueError(f"state_payloads: seq_len is {seq_len}, expected at most {tables.max_context_len}")
    spans = torch.ops.dsv4_npu_ops.payload_spans(seq_len, prefix_len, tables.sliding_window)
    parts, counts = [], []
    for pool, first, end in zip(_POOLS, spans[::2], spans[1::2], strict=True):
        table = tables.table(pool)
        if first == end or table is None:
            counts.append(0)
            continue
        page_size = page_sizes[POOLS.index(pool)]
        first_page, end_page = first // page_size, -(-end // page_size)
        counts.append(end_page - first_page)
        parts += _entries(pool, table[request], first_page, end_page)
    entries = iter(torch.cat(parts).tolist() if parts else ())
    pages = {pool: [next(entries) for _ in range(count)] for pool, count in zip(_POOLS, counts, strict=True)}
    for pool, ids in pages.items():
        missing = [i for i, page in enumerate(ids) if page <= 0]
        if missing:
            raise ValueError(
                f"state_payloads: request {request} has no page in pool {pool} for entry {missing[0]} of {len(ids)} "
                f"that {seq_len} tokens need, expected it to be allocated and not evicted"
            )
    return {kind: list(pages[pool]) for kind, pool in _POOL_OF.items()}


def _entries(pool: str, row: Tensor, first_page: int, end_page: int) -> list[Tensor]:
    """The columns of the pages, in one stretch or, around the end of a ring, in two."""
    columns = row.shape[0]
    if end_page - first_page > columns:
        raise ValueError(
            f"state_payloads: pool {pool} has {columns} columns a request, expected at least {end_page - first_page}"
        )
    first = first_page % columns
    end = first + end_page - first_page
    return [row[first : min(end, columns)], row[: max(0, end - columns)]]


@dataclass(frozen=True)
class PageCopies:
    """Contiguous copies, one entry each: ``lens[i]`` bytes from our ``source[i]`` to the receiver's ``target[i]``."""

    source: list[int]
    target: list[int]
    lens: list[int]


def page_copies(
    ours: Sequence[StateComponent], theirs: Sequence[StateComponent], pages: Payload, their_pages: Payload
) -> PageCopies:
    """The sender's copies of one request's pages to the receiver. Pages next to each other on both ends are one copy.

    Args:
        ours, theirs: the components of sender and receiver.
        pages, their_pages: the request's pages on both ends, from ``state_payloads`` for the same lengths.

    Raises:
        ComponentMismatch: the components differ (``match_components``); a component has no page list on one end, or
            another number of pages than on the other; a page is reserved or outside its tensors.

    Source: docs/spec.md, prefill-decode disaggregation.
    """
    match_components(ours, theirs)
    copies = PageCopies([], [], [])
    for our, their in zip(ours, theirs, strict=True):
        runs = _runs(our, their, pages, their_pages)
        for our_ptr, their_ptr, item in zip(our.data_ptrs, their.data_ptrs, our.item_lens, strict=True):
            copies.source.extend([our_ptr + page * item for page, _, _ in runs])
            copies.target.extend([their_ptr + page * item for _, page, _ in runs])
            copies.lens.extend([count * item for _, _, count in runs])
    return copies


def _runs(
    our: StateComponent, their: StateComponent, pages: Payload, their_pages: Payload
) -> list[tuple[int, int, int]]:
    """``(our page, their page, pages)`` of every stretch that is contiguous on both ends."""
    kind = our.type
    for end, component, held in (("our", our, pages), ("their", their, their_pages)):
        if kind not in held:
            raise ComponentMismatch(f"component {kind.value}: expected {end} list of pages, got none")
        num_pages = min(length // item for length, item in zip(component.data_lens, component.item_lens, strict=True))
        for page in held[kind]:
            if not 0 < page < num_pages:
                raise ComponentMismatch(f"component {kind.value}: {end} page is {page}, expected 1 to {num_pages - 1}")
    if len(pages[kind]) != len(their_pages[kind]):
        raise ComponentMismatch(
            f"component {kind.value}: expected {len(pages[kind])} pages, got {len(their_pages[kind])}"
        )
    runs: list[tuple[int, int, int]] = []
    for page, their_page in zip(pages[kind], their_pages[kind], strict=True):
        if runs:
            first, their_first, count = runs[-1]
            if (page, their_page) == (first + count, their_first + count):
                runs[-1] = (first, their_first, count + 1)
                continue
        runs.append((page, their_page, 1))
    return runs

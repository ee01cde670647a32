"""The pages of one request that travel, and the copies that two ends agree on.

Source: docs/spec.md, prefill-decode disaggregation.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from dsv4_npu_ops.disagg.components import ComponentMismatch, StateComponent, StateType, match_components
from dsv4_npu_ops.layout import RequestTables
from dsv4_npu_ops.layout.kv_layout import RAW_TOKENS_PER_SLOT

Payload = Mapping[StateType, Sequence[int]]
"""Page ids of one request by kind of state, ascending by page index; an empty list where nothing is due. A receiver has
0 in the place of a state page that it has already and that nobody may write."""

_POOLS = ("swa", "c4", "c128", "c4_state", "c128_state")
_POOL_OF = {kind: "c4" if kind is StateType.INDEXER else kind.value for kind in StateType}
_STATES = (StateType.C4_STATE, StateType.C128_STATE)


def state_payloads(
    tables: RequestTables,
    request: int,
    seq_len: int,
    prefix_len: int = 0,
    *,
    shared_pages: Mapping[str, Collection[int]] | None = None,
) -> dict[StateType, list[int]]:
    """The pages that a request of ``seq_len`` committed tokens needs to go on elsewhere.

    KV (``c4``, ``c128``, ``indexer`` and what is live of ``swa``) starts behind the receiver's prefix; state never
    does. The sender calls it with its tables and the receiver with its own, for the same two lengths: the lists then
    have the same length and belong together entry by entry.

    A receiver that started on pages of other requests gives ``shared_pages``, since nobody may write those. What it
    needs of their state it has got with them: 0 stands in their places, and ``page_copies`` leaves them out.

    Page ids are read from the tables, which is one device-to-host copy: for the end of a prefill, not for a step.

    Args:
        tables: the request tables of either end.
        request: request id, ``0 <= request < max_requests``.
        seq_len: committed tokens.
        prefix_len: tokens whose KV the receiver has already, at most ``seq_len``.
        shared_pages: on the receiver, page indices by pool that it must not write: ``KVAllocator.shared_pages``.

    Returns:
        for every ``StateType``, in order, the page ids; ``[]`` where nothing is due and for pools that the layout does
        not have.

    Raises:
        ValueError: an argument out of range; a page that is due and not in the tables (evicted or never allocated); a
            shared page that would have to be written, because it reaches behind ``prefix_len``.

    Source: docs/spec.md, prefill-decode disaggregation.
    """
    layout = tables.layout
    if not 0 <= request < layout.max_requests:
        raise ValueError(f"state_payloads: request is {request}, expected 0 to {layout.max_requests - 1}")
    if seq_len > layout.max_context_len:
        raise ValueError(f"state_payloads: seq_len is {seq_len}, expected at most {layout.max_context_len}")
    ends = torch.ops.dsv4_npu_ops.payload_spans(seq_len, prefix_len, layout.sliding_window)
    spans = dict(zip(_POOLS, zip(ends[::2], ends[1::2], strict=True), strict=True))
    page_size = layout.page_size
    parts, counts = [], []
    for pool, (first, end) in spans.items():
        if first == end or not layout.has_pool(pool):
            counts.append(0)
            continue
        row = getattr(tables, pool)[request]
        # One entry a page: its first one, and in the first page the first that is due, since what lies before may be
        # gone.
        following = first - first % page_size + page_size
        parts += [row[first : first + 1], row[following:end:page_size]]
        counts.append(1 + len(range(following, end, page_size)))
    slots = iter(torch.cat(parts).tolist() if parts else ())
    pages = {pool: [next(slots) // page_size for _ in range(count)] for pool, count in zip(_POOLS, counts, strict=True)}
    for pool, ids in pages.items():
        if 0 in ids:
            raise ValueError(
                f"state_payloads: request {request} has no page in pool {pool} for entry {ids.index(0)} of {len(ids)} "
                f"that {seq_len} tokens need, expected it to be allocated and not evicted"
            )
        _clear_shared(ids, pool, spans[pool], page_size, prefix_len, (shared_pages or {}).get(pool, ()))
    return {kind: list(pages[pool]) for kind, pool in _POOL_OF.items()}


def _clear_shared(
    ids: list[int], pool: str, span: tuple[int, int], page_size: int, prefix_len: int, shared: Collection[int]
) -> None:
    """Puts 0 for pages, given by index, that several requests own. They all hold what lies before ``prefix_len``."""
    first, end = span
    for index in shared:
        entry = index - first // page_size
        if not 0 <= entry < len(ids):
            continue
        due_until = min(end, (index + 1) * page_size) * RAW_TOKENS_PER_SLOT[pool]
        if due_until > prefix_len:
            raise ValueError(
                f"state_payloads: prefix_len is {prefix_len}, expected at least {due_until}: page {index} of pool "
                f"{pool} belongs to other requests too and cannot be written"
            )
        ids[entry] = 0


@dataclass(frozen=True)
class PageCopies:
    """Contiguous copies, one entry each: ``lens[i]`` bytes from our ``source[i]`` to the receiver's ``target[i]``."""

    source: list[int]
    target: list[int]
    lens: list[int]


def page_copies(
    ours: Sequence[StateComponent], theirs: Sequence[StateComponent], pages: Payload, their_pages: Payload
) -> PageCopies:
    """The sender's copies of one request's pages to the receiver. Pages next to each other on both ends are one copy;
    state pages that the receiver has already are not copied.

    Args:
        ours, theirs: the components of sender and receiver.
        pages, their_pages: the request's pages on both ends, from ``state_payloads`` for the same lengths.

    Raises:
        ComponentMismatch: the components differ (``match_components``); a component has no page list on one end, or
            another number of pages than on the other; a page is outside its tensors or reserved, other than as the
            receiver's sign for a state page that it has.

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
        may_have = end == "their" and kind in _STATES
        if kind not in held:
            raise ComponentMismatch(f"component {kind.value}: expected {end} list of pages, got none")
        num_pages = min(length // item for length, item in zip(component.data_lens, component.item_lens, strict=True))
        for page in held[kind]:
            if not 0 < page < num_pages and not (page == 0 and may_have):
                raise ComponentMismatch(f"component {kind.value}: {end} page is {page}, expected 1 to {num_pages - 1}")
    if len(pages[kind]) != len(their_pages[kind]):
        raise ComponentMismatch(
            f"component {kind.value}: expected {len(pages[kind])} pages, got {len(their_pages[kind])}"
        )
    runs: list[tuple[int, int, int]] = []
    for page, their_page in zip(pages[kind], their_pages[kind], strict=True):
        if their_page == 0:
            continue
        if runs:
            first, their_first, count = runs[-1]
            if (page, their_page) == (first + count, their_first + count):
                runs[-1] = (first, their_first, count + 1)
                continue
        runs.append((page, their_page, 1))
    return runs

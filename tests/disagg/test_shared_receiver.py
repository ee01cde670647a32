"""A receiver that started on pages of another request: what travels, and that only its own pages are written."""

import pytest
from cache.small_cache import make
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.state_payloads import TYPES, due_units

from dsv4_npu_ops.disagg import ComponentMismatch, StateComponent, StateType, page_copies, state_payloads

POOL_OF = {kind: "c4" if kind == "indexer" else kind for kind in TYPES}
OUR_PAGES, THEIR_PAGES = 1 << 20, 1 << 24  # addresses, at one byte a page


def page_of(tables, pool, request, unit):
    return getattr(tables, pool)[request, unit].item() // tables.page_size


def owners(tables, pool, page):
    table = getattr(tables, pool)
    return (table // tables.page_size == page).any(dim=1).sum().item()


def share_256_extend_to_258():
    alloc, tables = make()
    alloc.alloc_extend([0], [0], [256])
    assert alloc.share_prefix([0], [1], [256]).starts == [256]
    alloc.alloc_extend([1], [256], [258])
    return alloc, tables


def test_no_page_with_two_owners_is_written():
    """Case 39: states 252..255 lie in a page that both requests own, and have been got with it."""
    alloc, tables = share_256_extend_to_258()
    assert alloc.shared_pages(1) == {
        "full": [0, 1],
        "swa": [1],
        "c4": [],
        "c128": [],
        "c4_state": [1],
        "c128_state": [],
    }
    payload = state_payloads(tables, 1, 258, 256, shared_pages=alloc.shared_pages(1))
    assert payload[StateType.C4_STATE] == [0, page_of(tables, "c4_state", 1, 256)]
    assert payload[StateType.C128_STATE] == [page_of(tables, "c128_state", 1, 256)]
    assert payload[StateType.SWA] == [page_of(tables, "swa", 1, 256)]
    for kind, pages in payload.items():
        assert all(owners(tables, POOL_OF[kind], page) == 1 for page in pages if page)


def test_a_receiver_without_shared_pages_gets_both_pages_of_state():
    """Case 25, and the request whose pages were shared: an owner that is left alone may be written again."""
    alloc, tables = share_256_extend_to_258()
    both = [page_of(tables, "c4_state", 1, unit) for unit in (252, 257)]
    assert state_payloads(tables, 1, 258, 256)[StateType.C4_STATE] == both
    alloc.free([0])
    assert state_payloads(tables, 1, 258, 256, shared_pages=alloc.shared_pages(1))[StateType.C4_STATE] == both


def test_what_others_own_and_the_receiver_says_it_lacks_is_refused():
    alloc, tables = share_256_extend_to_258()
    for prefix, pool, least in ((255, "swa", 256), (0, "swa", 256), (131, "swa", 256)):
        with pytest.raises(
            ValueError,
            match=f"prefix_len is {prefix}, expected at least {least}: page 1 of pool {pool} belongs to other",
        ):
            state_payloads(tables, 1, 258, prefix, shared_pages=alloc.shared_pages(1))
    alloc, tables = make(swa=None, page_size=16, pages=40)
    alloc.alloc_extend([0], [0], [256])
    alloc.share_prefix([0], [1], [256])
    with pytest.raises(
        ValueError, match="prefix_len is 100, expected at least 128: page 1 of pool c4 belongs to other"
    ):
        state_payloads(tables, 1, 256, 100, shared_pages=alloc.shared_pages(1))


def component(kind, base):
    return StateComponent(kind, (base,), (64,), (1,))


def test_a_state_page_that_the_receiver_has_is_not_copied():
    ends = [component(StateType.C4_STATE, 1000)], [component(StateType.C4_STATE, 2000)]
    ours, theirs = {StateType.C4_STATE: [5, 6, 7, 8]}, {StateType.C4_STATE: [1, 0, 3, 4]}
    copies = page_copies(*ends, ours, theirs)
    assert list(zip(copies.source, copies.target, copies.lens, strict=True)) == [(1005, 2001, 1), (1007, 2003, 2)]
    with pytest.raises(ComponentMismatch, match="component c4_state: our page is 0, expected 1 to 63"):
        page_copies(*ends, theirs, ours)
    with pytest.raises(ComponentMismatch, match="component c4_state: expected 4 pages, got 3"):
        page_copies(*ends, ours, {StateType.C4_STATE: [0, 3, 4]})


@pytest.mark.parametrize("kind", [StateType.SWA, StateType.C4, StateType.C128, StateType.INDEXER])
def test_a_page_of_kv_is_never_left_out(kind):
    with pytest.raises(ComponentMismatch, match=f"component {kind.value}: their page is 0, expected 1 to 63"):
        page_copies([component(kind, 1000)], [component(kind, 2000)], {kind: [5]}, {kind: [0]})


class Contents:
    """What the slots of a cache hold, by kind: the unit of the prompt, or -1."""

    def __init__(self, tables):
        self.tables, self.size = tables, tables.page_size
        self.slots = {kind: [-1] * tables.layout.num_slots(POOL_OF[kind]) for kind in TYPES}

    def row(self, kind, request):
        return getattr(self.tables, POOL_OF[kind])[request].tolist()

    def commit(self, request, begin, end):
        """Tokens [begin, end) have been computed: whatever has a slot is stored, and only there."""
        for kind in TYPES:
            u = {"c4": 4, "c128": 128}.get(POOL_OF[kind], 1)
            row = self.row(kind, request)
            for unit in range(begin // u, end // u):
                if row[unit]:
                    self.slots[kind][row[unit]] = unit

    def copy_within(self, shared):
        for kind in TYPES:
            pages, copies = (pages.tolist() for pages in shared.copies[POOL_OF[kind]])
            for page, copy in zip(pages, copies, strict=True):
                self.slots[kind][self.page(copy)] = self.slots[kind][self.page(page)]

    def page(self, page):
        return slice(page * self.size, (page + 1) * self.size)

    def components(self, base):
        return [
            StateComponent(StateType(kind), (base + i * 65536,), (len(slots) // self.size,), (1,))
            for i, (kind, slots) in enumerate(self.slots.items())
        ]

    def receive(self, sender, copies):
        """Carries the sender's copies out; addresses count pages."""
        for source, target, pages in zip(copies.source, copies.target, copies.lens, strict=True):
            kind = TYPES[(target - THEIR_PAGES) // 65536]
            for i in range(pages):
                ours, theirs = (source + i - OUR_PAGES) % 65536, (target + i - THEIR_PAGES) % 65536
                self.slots[kind][self.page(theirs)] = sender.slots[kind][sender.page(ours)]

    def assert_holds(self, request, seq_len, window):
        """Everything that a step from seq_len on reads."""
        for kind in TYPES:
            row = self.row(kind, request)
            for unit in due_units(kind, seq_len, 0, window):
                assert row[unit] and self.slots[kind][row[unit]] == unit, (kind, unit)


def prefill(alloc, contents, request, begin, end, chunk):
    while begin < end:
        until = min(begin + chunk, end)
        alloc.alloc_extend([request], [begin], [until])
        contents.commit(request, begin, until)
        alloc.evict([request], [until])
        begin = until


@given(
    page_size=st.sampled_from([1, 4, 16, 64, 128]),
    window=st.sampled_from([1, 3, 16, 128, 200]),
    cached=st.integers(0, 600),
    prefix=st.integers(0, 600),
    new=st.integers(0, 300),
    chunks=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    tail=st.booleans(),
    source_leaves=st.booleans(),
)
@settings(max_examples=200)
def test_any_shared_start_goes_on_where_the_sender_is(
    page_size, window, cached, prefix, new, chunks, tail, source_leaves
):
    """The receiver holds all that it will read, and every other request what it held."""
    size = dict(page_size=page_size, window=window, pages=2000 // page_size + 20, max_context_len=1024)
    ours, our_tables = make(**size)
    alloc, tables = make(**size)
    sender, receiver = Contents(our_tables), Contents(tables)
    prefill(alloc, receiver, 0, 0, cached, chunks[0])
    alloc.alloc_extend([2], [0], [7])
    if not cached:
        alloc.alloc_extend([0], [0], [0])
    shared = alloc.share_prefix([0], [1], [min(prefix, cached)])
    receiver.copy_within(shared)
    (start,) = shared.starts
    seq_len = min(start + new, 900)
    prefill(ours, sender, 1, 0, max(seq_len, 1), chunks[1])
    alloc.alloc_extend([1], [start], [seq_len], swa_tail=max(1, window - 1) if tail else None)
    if source_leaves:
        alloc.free([0])
    held = {kind: list(slots) for kind, slots in receiver.slots.items()}

    pages = state_payloads(tables, 1, seq_len, start, shared_pages=alloc.shared_pages(1))
    for kind, ids in pages.items():
        assert all(owners(tables, POOL_OF[kind], page) == 1 for page in ids if page)
    copies = page_copies(
        sender.components(OUR_PAGES),
        receiver.components(THEIR_PAGES),
        state_payloads(our_tables, 1, seq_len, start),
        pages,
    )
    receiver.receive(sender, copies)
    receiver.assert_holds(1, seq_len, window)
    for kind in TYPES:
        mine = {slot // page_size for slot in receiver.row(kind, 1) if slot} - {
            page_of(tables, POOL_OF[kind], 1, index * page_size) for index in alloc.shared_pages(1)[POOL_OF[kind]]
        }
        for slot, unit in enumerate(held[kind]):
            assert slot // page_size in mine or receiver.slots[kind][slot] == unit, (kind, slot)

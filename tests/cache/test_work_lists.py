"""The lists that the ledger makes: their order, and where their parts begin."""

import random
from itertools import pairwise

import pytest

from dsv4_npu_ops import KVAllocator, KVLayout, RequestTables

PARTS, PART_ROWS = 64, 17
ITEMS_OF_SEGMENT = 533
"""As many items as take the time of a segment (kSegmentNs and kEightItemsNs)."""


class Ledger:
    """An allocator without its device half: what its ledger says is kept."""

    def __init__(self, requests, context):
        layout = KVLayout(
            page_size=16,
            max_requests=requests,
            max_context_len=context,
            num_pages=dict.fromkeys(
                ("full", "swa", "c4", "c128", "c4_state", "c128_state"), requests * -(-context // 16)
            ),
        )
        self.ledger = KVAllocator(layout, RequestTables(layout))._ledger

    def extend(self, requests, prefixes, ends):
        (rows, (count, items, *_)), *_ = self.ledger.alloc_extend(requests, prefixes, ends, None)
        self.ledger.commit_extension()
        return rows[:count].tolist(), items


def parts_of(rows):
    numbers = [number for row in rows[-PART_ROWS:] for number in row][: 2 * PARTS + 2]
    return rows[:-PART_ROWS], list(zip(numbers[::2], numbers[1::2], strict=True))


@pytest.mark.parametrize("requests, longest", [(1, 1), (1, 3000), (3, 5), (40, 9), (200, 4), (30, 700)])
def test_parts_of_an_allocation(requests, longest):
    source = random.Random(requests)
    rows, items = Ledger(requests, 3100).extend(
        list(range(requests)), [0] * requests, [source.randint(1, longest) for _ in range(requests)]
    )
    segments, parts = parts_of(rows)
    # Pool after pool, whose outputs follow each other.
    assert [row[0] for row in segments] == sorted(row[0] for row in segments)
    for before, row in pairwise(segments):
        assert row[6] == (before[6] + before[3] - before[2] if before[0] == row[0] else 0)
    assert parts[0] == (0, 0) and parts[-1] == (len(segments), items)
    assert parts == sorted(parts)
    for segment, item in parts[:-1]:
        _, _, begin, end, _, _, out_begin, items_before = segments[segment]
        assert items_before <= item < items_before + end - begin
        # No two parts write into one 32-byte piece of an output.
        assert (out_begin + item - items_before) % 8 == 0
    # As long as the others but for what stands in one piece of 32 bytes and for one segment.
    time = [item + ITEMS_OF_SEGMENT * segment for segment, item in parts]
    share = (len(segments) * ITEMS_OF_SEGMENT + items) / PARTS
    assert all(end - begin <= share + 9 * ITEMS_OF_SEGMENT + 8 for begin, end in pairwise(time))


def test_an_empty_list_has_no_rows():
    rows, items = Ledger(2, 100).extend([0], [0], [0])
    assert rows == [] and items == 0

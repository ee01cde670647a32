"""token_slots against TokenSpeed's own functions: every slot mapping of a step, in one launch."""

import os
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dsv4_npu_ops
from dsv4_npu_ops import BatchPageTable
from engines.tokenspeed.loading import load
from engines.wheels import WHEELS

VERSION = os.environ["TOKENSPEED_VERSION"]
engine = load(WHEELS["tokenspeed", VERSION].unpacked(), VERSION)
HAS_OFFSETS = VERSION == "0.1.0"
"""Later ones keep whole tables, and reserve page 0 of compressed entries."""

RAW = {"swa": 64, "c4 state": 4, "c128 state": 8, "indexer state": 4}
"""Rows of a page of the groups whose entries are tokens."""
COMPRESSED = {4: 64, 128: 2}
"""The same by ratio."""
LONGEST, PAGES = 1200, 50


@st.composite
def batches(draw):
    """First chunks, chunks, decodes and verifies of different widths, then padding of a captured graph."""
    count = draw(st.integers(1, 6))
    widths = draw(st.lists(st.integers(1, 300), min_size=count, max_size=count))
    starts = draw(st.lists(st.integers(0, LONGEST - 300), min_size=count, max_size=count))
    padding = draw(st.integers(0, 3))
    return SimpleNamespace(
        seq_lens=torch.tensor([a + n for a, n in zip(starts, widths, strict=True)] + [0] * padding).int(),
        widths=torch.tensor(widths + [draw(st.integers(1, 4))] * padding),
        num_valid=sum(widths),
        seed=draw(st.integers(0, 2**31)),
    )


def rows_of(batch):
    """What TokenSpeed knows of each token."""
    ends = torch.cat([torch.zeros(1, dtype=torch.int64), batch.widths.cumsum(0)]).int()
    request = torch.repeat_interleave(torch.arange(len(batch.widths)), batch.widths)
    starts = (batch.seq_lens - batch.widths).clamp(min=0)
    positions = starts[request] + torch.arange(int(ends[-1])) - ends[request]
    return ends, request.int(), positions, torch.arange(int(ends[-1])) < batch.num_valid


def table_of(batch, page_size, ratio, generator, shortened):
    """A group's table, with holes and page 0; shortened at random, and too short for some rows."""
    rows, pages = len(batch.seq_lens), LONGEST // ratio // page_size + 1
    first = torch.randint(0, pages, (rows,), generator=generator).int() if shortened else None
    columns = max(1, pages - int(torch.randint(0, 3, (), generator=generator)))
    return torch.randint(-1, PAGES, (rows, columns), generator=generator).int(), first


def metadata_of(tables):
    """TokenSpeed's own view of the tables of compressed entries, by ratio: table and first pages."""
    named = {f"v4.c{ratio}a.compressed_kv": table for ratio, (table, _) in tables.items()}
    other = torch.empty(0, 0, dtype=torch.int32)
    if HAS_OFFSETS:
        firsts = {f"v4.c{ratio}a.compressed_kv": first for ratio, (_, first) in tables.items() if first is not None}
        return engine.metadata(256, other, named, firsts)
    return engine.metadata(256, other, 1, 0, None, named)


class Step:
    """Tables of a batch, and its slot mappings by both: those of RAW, then those of COMPRESSED."""

    def __init__(self, batch, *, shortened):
        generator = torch.Generator().manual_seed(batch.seed)
        shortened = shortened and HAS_OFFSETS
        self.raw = {name: table_of(batch, size, 1, generator, shortened) for name, size in RAW.items()}
        self.compressed = {r: table_of(batch, size, r, generator, shortened) for r, size in COMPRESSED.items()}
        self.batch, self.rows = batch, rows_of(batch)

    def theirs(self):
        ends, request, positions, valid = self.rows
        expected = []
        for (table, first), page_size in zip(self.raw.values(), RAW.values(), strict=True):
            options = {"base_offsets": first} if HAS_OFFSETS else {}
            slots = engine.raw_slots(positions, request, table, page_size, **options)
            expected.append(torch.where(valid, slots, -1))  # its mask for padding, which it applies behind
        metadata = metadata_of(self.compressed)
        options = {} if HAS_OFFSETS else {"indexer": False}
        for ratio, page_size in COMPRESSED.items():
            slots = metadata.compressed_slot_mapping(
                positions,
                ratio,
                token_to_req_indices=request,
                query_start_loc=ends,
                seq_lens=self.batch.seq_lens,
                kv_cache_block_size=page_size,
                is_valid_token=valid,
                **options,
            )
            expected.append(slots)
        return expected

    def ours(self, shift=0):
        """shift: of every page, to see that it matters."""
        lowest = 0 if HAS_OFFSETS else 1
        tables = [
            BatchPageTable(table + shift if shift else table, size, 1, first)
            for (table, first), size in zip(self.raw.values(), RAW.values(), strict=True)
        ]
        tables += [
            BatchPageTable(table + shift if shift else table, COMPRESSED[ratio], ratio, first, lowest)
            for ratio, (table, first) in self.compressed.items()
        ]
        ends = self.rows[0]
        return dsv4_npu_ops.token_slots(ends, self.batch.seq_lens, tables, len(self.rows[1]), len(self.batch.widths))


@given(batch=batches(), shortened=st.booleans())
def test_all_mappings_of_a_step(batch, shortened):
    step = Step(batch, shortened=shortened)
    for slots, expected in zip(step.ours(), step.theirs(), strict=True):
        assert slots.dtype == expected.dtype == torch.int64
        assert torch.equal(slots, expected)


@pytest.mark.parametrize("shift", [0, 1])
def test_a_slot_that_is_off_would_be_seen(shift):
    """The comparison above is one of values: with pages one off, nothing of it holds."""
    batch = SimpleNamespace(seq_lens=torch.tensor([600]).int(), widths=torch.tensor([600]), num_valid=600, seed=1)
    step = Step(batch, shortened=False)
    same = [torch.equal(*pair) for pair in zip(step.ours(shift), step.theirs(), strict=True)]
    assert same == [shift == 0] * 6

"""Buffers of captured graphs: SGLang's own refresh beside the plug-in's, replay after replay."""

import random
from types import SimpleNamespace

import pytest
import torch

from dsv4_npu_ops.engines.hooks import Unexpected, version_tuple
from dsv4_npu_ops.engines.sglang import graphs
from engines.sglang.compared import assert_same_buffers
from engines.sglang.world import (
    DEVICE,
    SIX_NAMES,
    SIX_TABLES,
    VERSION,
    Backend,
    ForwardMode,
    OutCacheLoc,
    World,
    backend_of,
    random_lengths,
    sgl,
)

BUCKETS = (1, 2, 5, 8)
ROTATES_AT_FIRST = version_tuple(VERSION) >= (0, 5, 20)


class Pair:
    """Two backends over one world, each with graphs of its own: SGLang's, and the plug-in's."""

    def __init__(self, world, mode, **kind):
        self.world, self.mode = world, mode
        self.theirs, self.ours = backend_of(world, **kind), backend_of(world, **kind)
        original = Backend._apply_dsv4_graph_metadata if SIX_TABLES else None
        self.ours._apply_dsv4_graph_metadata = lambda batch: graphs.apply_graph_metadata(original, self.ours, batch)
        for backend in (self.theirs, self.ours):
            tokens = max(BUCKETS) * world.width
            backend.init_cuda_graph_state(max(BUCKETS), tokens)
            for rows in BUCKETS:
                batch = self.batch([], rows)
                backend.graph_metadata[rows] = backend._init_cuda_graph_metadata(
                    rows, mode, batch.seq_lens, batch.out_cache_loc
                )
                backend.forward_metadata = backend.graph_metadata[rows]
                backend._init_dsv4_graph_metadata(rows, mode)
                metadata = backend.graph_metadata[rows]
                if metadata.block_tables_swa is None:
                    metadata.block_tables_swa = backend.graph_metadata["block_tables_swa"][:rows]

    def batch(self, requests, rows, *, expanded=False, live=False, idle=False):
        """A batch of the requests in a graph for so many rows, as SGLang's runner pads it."""
        world, mode = self.world, self.mode
        width = 1 if mode.is_decode() else world.width
        lens = [world.lengths[row] for row in requests]
        padding = rows - len(requests)
        if mode.is_target_verify():
            starts, given = lens, [length + width * expanded for length in lens]
        else:
            lens = [length + width for length in lens]  # final lengths
            starts, given = [length - width for length in lens], lens
        slots = [world.slots(row, start, start + width) for row, start in zip(requests, starts, strict=True)]
        full = torch.cat(slots).long() if slots else torch.zeros(0, dtype=torch.int64, device=DEVICE)
        positions = [start + j for start in starts for j in range(width)] + [0] * padding * width
        groups = {ratio: sum((start + width) // ratio - start // ratio for start in starts) for ratio in (4, 128)}
        bundle = None if idle else bundle_of(world, requests, starts, width)
        kinds = getattr(sgl.ascend, "SpecInputType", SimpleNamespace(DFLASH_VERIFY=None, EAGLE_VERIFY=None))
        spec = SimpleNamespace(
            draft_token_num=width, spec_input_type=kinds.DFLASH_VERIFY if expanded else kinds.EAGLE_VERIFY
        )
        if live:
            spec.live_seq_lens_cpu = torch.tensor(lens)
        return SimpleNamespace(
            forward_mode=mode,
            actual_forward_mode=ForwardMode.IDLE if idle else mode,
            batch_size=rows,
            num_padding=padding,
            req_pool_indices=world.tensor(requests + [0] * padding, torch.int64),
            seq_lens=world.tensor(lens + [0] * padding, torch.int64),
            seq_lens_cpu=torch.tensor(given + [0] * padding, dtype=torch.int64),
            out_cache_loc=full,
            out_cache_loc_dsv4=bundle,
            positions=world.tensor(positions, torch.int64),
            spec_info=None if mode.is_decode() else spec,
            groups=groups,
            spec_algorithm=None,
        )

    def replay(self, requests, rows, **kind):
        """One replay by both; compared where it means something."""
        results = []
        for backend in (self.theirs, self.ours):
            batch = self.batch(requests, rows, **kind)
            backend.init_forward_metadata_out_graph(batch)
            results.append(backend.forward_metadata)
        lens = [self.world.lengths[row] for row in requests]
        width = 1 if self.mode.is_decode() else self.world.width
        wrong = () if ROTATES_AT_FIRST or not self.mode.is_target_verify() else ("positions_cmp_padding",)
        idle = kind.get("idle", False)
        finals = [length + width for length in lens]
        assert_same_buffers(
            *results,
            *(([], []) if idle else (lens, finals)),
            skip=wrong,
            compresses=self.theirs._dsv4_has_c4,
        )
        return results


def columns_in_use(backend):
    """Of each page table that graphs share, as SGLang keeps it from 0.5.20 on: what a shorter replay has to clear."""
    return getattr(backend, "_graph_table_high_water", {})


def bundle_of(world, requests, starts, width):
    """Slots of the tokens and of the groups that they complete, from SGLang's tables by plain loops."""
    if SIX_TABLES:
        return bundle_of_six(world, requests, starts, width)
    full, c4, c128 = [], [], []
    for row, start in zip(requests, starts, strict=True):
        slots = world.slots(row, start, start + width).tolist()
        full += slots
        c4 += [slot // 4 for slot in slots if slot % 4 == 3]
        for group in range(start // 128, (start + width) // 128):
            page = int(world.pool.req_to_c128_sidecar[row, group // 16])
            c128.append(page * 16 + group % 16)
    swa = world.kv.full_to_swa_index_mapping[world.tensor(full, torch.int64)]
    return OutCacheLoc(
        out_full_loc=world.tensor(full, torch.int32),
        out_swa_loc=swa,
        out_c4_loc=world.tensor(c4, torch.int32),
        out_c128_loc=world.tensor(c128, torch.int32),
    )


def bundle_of_six(world, requests, starts, width):
    """The same, until 0.5.17."""
    locs = []
    for name, unit in zip(SIX_NAMES, (1, 1, 4, 128, 1, 1), strict=True):
        table = getattr(world.pool, name)
        spans = [(start // unit, (start + width) // unit) for start in starts]
        parts = [table[row, begin:end] for row, (begin, end) in zip(requests, spans, strict=True)]
        locs.append(torch.cat(parts) if parts else table.new_empty(0))
    return OutCacheLoc(*locs)


def world_of(seed, width):
    draws = random.Random(seed)
    world = World(rows=9, context=2560, width=width)
    for row, length in enumerate(random_lengths(draws, 8, world.context, 2 * width + 2), start=1):
        world.start(row, length)
    world.reserve(list(world.lengths), 2 * width)
    return draws, world


@pytest.mark.parametrize("width", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("seed", range(4))
def test_verify_refresh_equals_sglangs_over_replays_of_all_buckets(seed, width):
    draws, world = world_of(seed, width)
    pair = Pair(world, ForwardMode.TARGET_VERIFY)
    for _ in range(6):
        rows = draws.choice(BUCKETS)
        requests = draws.sample(range(1, 9), draws.randint(1, rows))
        pair.replay(requests, rows)
        for row in requests:  # some tokens are accepted, and the next step's are reserved
            world.lengths[row] = min(world.lengths[row] + draws.randint(1, width), world.context - 2 * width)
        world.reserve(requests, 2 * width)


def test_page_tables_grow_with_requests_whatever_graph_they_grew_in():
    world = World(rows=5, context=4600, width=4)
    for row, length in enumerate([120, 2166, 5, 380], start=1):
        world.start(row, length)
    pair = Pair(world, ForwardMode.TARGET_VERIFY)
    for step in range(12):
        world.reserve([1, 2, 3, 4], 8)
        for requests, rows in (([1], 1), ([3], 1), ([1, 2], 2), ([1], 2), ([4, 1, 3], 5)):
            pair.replay(requests, rows)
            in_use = columns_in_use(pair.ours)
            assert all(in_use[name] >= columns for name, columns in columns_in_use(pair.theirs).items())
        for row in world.lengths:
            world.lengths[row] += 160 if step % 4 == 3 else 3


@pytest.mark.parametrize("seed", range(4))
def test_decode_refresh_equals_sglangs(seed):
    draws, world = world_of(seed, 1)
    pair = Pair(world, ForwardMode.DECODE)
    for _ in range(6):
        rows = draws.choice(BUCKETS)
        requests = draws.sample(range(1, 9), draws.randint(1, rows))
        pair.replay(requests, rows)
        for row in requests:
            world.lengths[row] = min(world.lengths[row] + 1, world.context - 2)
        world.reserve(requests, 2)


HAS_DSPARK = pytest.mark.skipif(SIX_TABLES, reason="SGLang has no DSpark yet")


@HAS_DSPARK
@pytest.mark.parametrize("algorithm", ["dspark", "dflash"])
@pytest.mark.parametrize("live", [False, True])
def test_verify_of_callers_that_give_final_lengths(algorithm, live):
    if algorithm == "dflash" and not live:
        pytest.skip("without committed lengths SGLang takes the given ones for them")
    draws, world = world_of(11, 4)
    pair = Pair(world, ForwardMode.TARGET_VERIFY, algorithm=algorithm)
    for _ in range(4):
        rows = draws.choice(BUCKETS)
        requests = draws.sample(range(1, 9), draws.randint(1, rows))
        pair.replay(requests, rows, expanded=True, live=live)


def test_draft_extend_equals_sglangs():
    draws, world = world_of(5, 4)
    pair = Pair(world, ForwardMode.DRAFT_EXTEND_V2, is_draft=True)
    for _ in range(5):
        rows = draws.choice(BUCKETS)
        pair.replay(draws.sample(range(1, 9), draws.randint(1, rows)), rows)


def test_steps_of_a_draft_take_their_slots_from_the_step():
    draws, world = world_of(6, 4)
    pair = Pair(world, ForwardMode.DECODE, is_draft=True)
    for _ in range(5):
        rows = draws.choice(BUCKETS)
        pair.replay(draws.sample(range(1, 9), draws.randint(1, rows)), rows)


@HAS_DSPARK
@pytest.mark.parametrize("block", [1, 3, 8])
def test_dspark_draft_blocks_equal_sglangs(block):
    draws, world = world_of(7, block)
    pair = Pair(world, ForwardMode.TARGET_VERIFY, is_draft=True, algorithm="dspark")
    for _ in range(5):
        rows = draws.choice(BUCKETS)
        requests = draws.sample(range(1, 9), draws.randint(1, rows))
        theirs, ours = pair.replay(requests, rows, expanded=True)
        assert torch.equal(theirs.ori_sparse_indices, ours.ori_sparse_indices)


@pytest.mark.parametrize("mode", [ForwardMode.TARGET_VERIFY, ForwardMode.DECODE])
def test_idle_replays_leave_dummies_alone(mode):
    _, world = world_of(8, 4 if mode.is_target_verify() else 1)
    pair = Pair(world, mode)
    pair.replay([1, 2, 3], 5)
    _, ours = pair.replay([], 5, idle=True)
    assert int(ours.seqused.sum()) == 0 and int(ours.c4_loc.sum()) == 0
    pair.replay([3, 1], 5)


def test_an_engine_that_gives_no_host_lengths_is_left_alone():
    _, world = world_of(9, 4)
    pair = Pair(world, ForwardMode.TARGET_VERIFY)
    batch = pair.batch([1], 1)
    pair.ours.forward_metadata = pair.ours.graph_metadata[1]
    before = {
        name: value.clone() for name, value in vars(pair.ours.graph_metadata[1]).items() if torch.is_tensor(value)
    }
    batch.seq_lens_cpu = None
    with pytest.raises(Unexpected, match="seq_lens_cpu"):
        graphs.apply_graph_metadata(None, pair.ours, batch)
    after = vars(pair.ours.graph_metadata[1])
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert sgl is not None


def test_positions_are_sglangs_again_after_a_replay_that_was_left_to_it():
    _, world = world_of(10, 4)
    pair = Pair(world, ForwardMode.TARGET_VERIFY)
    pair.replay([1, 2], 2)
    metadata, calls = pair.ours.forward_metadata, []

    def update(self, spec_info, cuda_graph_bs):
        calls.append(cuda_graph_bs)

    graphs.update_after_draft(update, pair.ours, None, 2)
    assert not calls, "the launch has filled them"
    batch = pair.batch([1, 2], 2)
    batch.out_cache_loc_dsv4 = None
    with pytest.raises(Unexpected, match="out_cache_loc_dsv4"):
        graphs.apply_graph_metadata(None, pair.ours, batch)
    assert pair.ours.forward_metadata is metadata
    graphs.update_after_draft(update, pair.ours, None, 2)
    assert calls == [2]


def test_rows_that_are_not_contiguous_are_sglangs():
    _, world = world_of(10, 4)
    pair = Pair(world, ForwardMode.TARGET_VERIFY)
    batch = pair.batch([1, 2], 2)
    batch.req_pool_indices = torch.stack([batch.req_pool_indices] * 2, dim=1)[:, 0]
    pair.ours.forward_metadata = pair.ours.graph_metadata[2]
    original = None if not SIX_TABLES else (lambda self, batch: None)
    with pytest.raises(Unexpected, match="strides"):
        graphs.apply_graph_metadata(original, pair.ours, batch)

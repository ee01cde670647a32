"""Metadata of eager steps: SGLang's own beside the plug-in's."""

import random
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from dsv4_npu_ops.engines.hooks import Unexpected, version_tuple
from dsv4_npu_ops.engines.sglang import eager
from engines.sglang.compared import assert_same_buffers
from engines.sglang.test_graphs import ROTATES_AT_FIRST, bundle_of, world_of
from engines.sglang.world import DEVICE, SIX_TABLES, VERSION, ForwardMode, World, backend_of, explicit_state_tables, sgl


def both(world, batch, cu_seqlens, **kind):
    """Metadata by SGLang and by the plug-in."""
    results = []
    for ours in (False, True):
        backend = backend_of(world, **kind)
        backend.forward_metadata = sgl.ascend.ForwardMetadata()
        backend.forward_metadata.actual_seq_lengths_q_pa = world.tensor(cu_seqlens, torch.int32)
        expanded = 0 if kind.get("algorithm") == "dspark" else batch.spec_info.draft_token_num if batch.spec_info else 0
        backend.forward_metadata.seq_lens_cpu_int = batch.seq_lens_cpu.int() + expanded
        if ours:
            eager.build_compress_metadata(None, backend, batch)
        else:
            backend._build_npu_compress_metadata(batch)
            metadata = backend.forward_metadata
            for ratio, table in explicit_state_tables(world, batch, metadata).items():  # SGLang's first layer does it
                metadata.dsv4_explicit_state_block_tables[ratio] = table
        results.append(backend.forward_metadata)
    for name in ("c4_page_table", "c128_page_table"):
        assert getattr(results[0], name).shape == getattr(results[1], name).shape
    return results


def batch_of(world, mode, rows, starts, widths, *, bundle=True, expanded=False):
    finals = [start + width for start, width in zip(starts, widths, strict=True)]
    is_verify = mode.is_target_verify()
    lens = starts if is_verify else finals
    spec = SimpleNamespace(draft_token_num=widths[0]) if is_verify else None
    positions = [start + j for start, width in zip(starts, widths, strict=True) for j in range(width)]
    parts = [bundle_of(world, [row], [start], width) for row, start, width in zip(rows, starts, widths, strict=True)]
    joined = type(parts[0])(**{name: torch.cat([getattr(part, name) for part in parts]) for name in vars(parts[0])})
    return SimpleNamespace(
        forward_mode=mode,
        batch_size=len(rows),
        req_pool_indices=world.tensor(rows, torch.int64),
        seq_lens=world.tensor(lens, torch.int64),
        seq_lens_cpu=torch.tensor(finals if expanded else lens, dtype=torch.int64),
        extend_seq_lens_cpu=widths,
        extend_prefix_lens=world.tensor(starts, torch.int64),
        extend_prefix_lens_cpu=starts,
        out_cache_loc=joined.out_full_loc.long(),
        out_cache_loc_dsv4=joined if bundle else None,
        positions=world.tensor(positions, torch.int64),
        spec_info=spec,
        spec_algorithm=None,
    )


@pytest.mark.skipif(version_tuple(VERSION) < (0, 5, 17), reason="chunks are SGLang's own then")
@pytest.mark.parametrize("seed", range(12))
def test_chunks_equal_sglangs(seed):
    draws = random.Random(seed)
    world = World(rows=7, context=2600)
    starts = {}
    for _ in range(draws.randint(1, 4)):  # chunks of ragged lengths, some rows new, some without a token
        rows = draws.sample(range(1, 7), draws.randint(1, 6))
        begin = [starts.get(row, 0) for row in rows]
        widths = [draws.choice((0, 1, 3, 4, 127, 128, 300)) for _ in rows]
        if not any(widths):
            continue
        ends = [min(start + width, 2500) for start, width in zip(begin, widths, strict=True)]
        world.extend(rows, ends)
        starts.update(zip(rows, ends, strict=True))
        widths = [end - start for start, end in zip(begin, ends, strict=True)]
        batch = batch_of(world, ForwardMode.EXTEND, rows, begin, widths)
        offsets = [sum(widths[:i]) for i in range(len(widths) + 1)]
        theirs, ours = both(world, batch, offsets)
        # SGLang gives a row without tokens its prefix as a start, the plug-in 0; no kernel looks at it.
        used = [i for i, width in enumerate(widths) if width]
        assert theirs.start_pos[used].tolist() == ours.start_pos[used].tolist()
        theirs.start_pos = ours.start_pos
        pairs = zip(begin, ends, strict=True)
        live = [(start, end) if end > start else (0, 0) for start, end in pairs]
        pages_of = partial(pages_of_states, world, rows) if SIX_TABLES else None
        assert_same_buffers(theirs, ours, [start for start, _ in live], [end for _, end in live], pages_of=pages_of)


def pages_of_states(world, rows, i, name):
    """Until 0.5.17 SGLang leaves out the pages in front of a chunk's last ones, which its first groups need."""
    pool = name.removesuffix("_page_table")
    return getattr(world.pool, f"req_to_token_{pool}")[rows[i], ::128] // 128


@pytest.mark.parametrize("seed", range(6))
def test_decodes_equal_sglangs(seed):
    draws, world = world_of(seed, 1)
    rows = draws.sample(range(1, 9), draws.randint(1, 8))
    starts = [world.lengths[row] for row in rows]
    batch = batch_of(world, ForwardMode.DECODE, rows, starts, [1] * len(rows))
    theirs, ours = both(world, batch, list(range(len(rows) + 1)))
    assert_same_buffers(theirs, ours, starts, [start + 1 for start in starts])


@pytest.mark.parametrize("algorithm", ["eagle", "dspark"])
@pytest.mark.parametrize("width", range(1, 9))
def test_verifies_equal_sglangs(width, algorithm):
    if algorithm == "dspark" and SIX_TABLES:
        pytest.skip("SGLang has no DSpark yet")
    draws, world = world_of(width, width)
    for bundle in (True, False):
        rows = draws.sample(range(1, 9), draws.randint(1, 8))
        starts = [world.lengths[row] for row in rows]
        mode = ForwardMode.TARGET_VERIFY
        expanded = algorithm == "dspark"
        batch = batch_of(world, mode, rows, starts, [width] * len(rows), bundle=bundle, expanded=expanded)
        theirs, ours = both(world, batch, list(range(0, len(rows) * width + 1, width)), algorithm=algorithm)
        skip = () if ROTATES_AT_FIRST else ("positions_cmp_padding",)
        for name in ("c4_loc", "c128_loc"):
            theirs.__dict__.setdefault(name, None)
        assert_same_buffers(theirs, ours, starts, [start + width for start in starts], skip=skip)


def test_what_is_not_known_is_left_to_sglang():
    _, world = world_of(1, 4)
    batch = batch_of(world, ForwardMode.EXTEND, [1], [world.lengths[1]], [2])
    backend = backend_of(world)
    batch.extend_prefix_lens_cpu = [0]
    with pytest.raises(Unexpected, match=r"prefix|chunks"):
        eager.build_compress_metadata(None, backend, batch)
    batch.forward_mode = ForwardMode.DRAFT_EXTEND_V2
    with pytest.raises(Unexpected, match="mode"):
        eager.build_compress_metadata(None, backend, batch)
    assert DEVICE is not None and vars(backend.forward_metadata) == {}

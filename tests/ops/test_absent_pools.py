"""A pool that does not exist is nobody's work: what launches do in the simulator, for every set of pools that exist."""

import dataclasses
from itertools import combinations

import pytest
import torch
from ops.step_inputs import POOLS, filled_tables

import dsv4_npu_ops
from dsv4_npu_ops import CompressMetadata, KVLayout, OutCacheLoc, VerifyStep

pytestmark = pytest.mark.simulated_only

TOKEN_POOLS = ("full", "swa", "c4_state", "c128_state")
TOKENS_PER_SLOT = dict(full=1, swa=1, c4=4, c128=128, c4_state=1, c128_state=1)
SUBSETS = [pools for count in range(len(POOLS) + 1) for pools in combinations(POOLS, count)]
NAMES = ["+".join(pools) or "none" for pools in SUBSETS]
SHORT, LONG = 100, 5000  # entries: less than a tile of the kernels, and several


def int32(entries):
    return torch.full((entries,), -77, dtype=torch.int32)


def fit_groups(out, pool, entries, slots_name):
    """Gives the group outputs of one ratio so many entries, none where the pool does not exist."""
    if hasattr(out, f"positions_{pool}"):
        setattr(out, f"positions_{pool}", torch.full((entries,), -77))
    if getattr(out, slots_name).numel():
        setattr(out, slots_name, int32(entries))


class Launches:
    """One block's launches of the step ops for two rows, one of them padding."""

    def __init__(self, device):
        self.device = device

    def run(self, op, pools, tokens=SHORT, c4=SHORT, c128=SHORT, width=4):
        """Counters of one launch whose outputs have so many entries, where there are such outputs."""
        layout = KVLayout(
            page_size=16, sliding_window=20, max_requests=2, max_context_len=300, num_pages=dict.fromkeys(pools, 8)
        )
        arguments = (filled_tables(layout, 1, "cpu"), torch.tensor([1, 0]), torch.tensor([126, 0]))
        out = self.buffers(op, layout, tokens, c4, c128)
        self.device.force_blocks(1)
        if op == "verify_bundle":
            dsv4_npu_ops.flatten_verify_bundle(*arguments, width, out=out)
        elif op == "compress_metadata":
            dsv4_npu_ops.build_compress_metadata_verify(*arguments, width, out=out)
        else:
            dsv4_npu_ops.build_verify_step(*arguments, width, torch.zeros(300, 0), torch.zeros(300, 0), out=out)
        self.device.force_blocks(0)
        assert self.device.take_errors() == []
        (counters,) = self.device.take_counters()
        buffers = {id(tensor): tensor for tensor in tensors_of(out)}
        assert counters["mte3_bytes"] == sum(tensor.nbytes for tensor in buffers.values())
        return counters

    def buffers(self, op, layout, tokens, c4, c128):
        if op == "verify_step":
            out = VerifyStep.empty(layout, 2, tokens, 0)
            parts = (out.out_cache_loc, out.metadata)
            for pool, entries in (("c4", c4), ("c128", c128)):
                for table in ("cos", "sin"):
                    setattr(out, f"{pool}_{table}", torch.empty(entries, 0))
        else:
            out = (OutCacheLoc if op == "verify_bundle" else CompressMetadata).empty(layout, 2, tokens)
            parts = (out,)
        for part in parts:
            for pool, entries in (("c4", c4), ("c128", c128)):
                fit_groups(part, pool, entries, f"out_{pool}_loc" if isinstance(part, OutCacheLoc) else f"{pool}_loc")
        if op == "verify_step":
            # Both halves have one tensor for the slots of groups.
            out.metadata.c4_loc, out.metadata.c128_loc = out.out_cache_loc.out_c4_loc, out.out_cache_loc.out_c128_loc
        return out

    def syncs(self, *arguments, **sizes):
        """What every tile does, whatever it moves: signals from one pipe to another."""
        return self.run(*arguments, **sizes)["flags_set"]


def tensors_of(out):
    """All buffers, those of the parts included."""
    for field in dataclasses.fields(out):
        value = getattr(out, field.name)
        if value is None:
            continue
        yield from [value] if isinstance(value, torch.Tensor) else tensors_of(value)


@pytest.fixture
def launches(ascend_sim):
    return Launches(ascend_sim)


@pytest.mark.parametrize("pools", SUBSETS, ids=NAMES)
def test_a_bundle_walks_for_pools_that_exist(launches, pools):
    """The pools of tokens share a walk, on which each has its own work."""

    def of_tiles(*existing):
        # With more tokens a row than uniform_step_kernel.cpp takes, so that one kernel makes all of them.
        return launches.syncs("verify_bundle", existing, LONG, LONG, LONG, width=9) - rows_only

    rows_only = launches.syncs("verify_bundle", POOLS, 0, 0, 0, width=0)
    if not pools:
        assert launches.syncs("verify_bundle", (), LONG, LONG, LONG, width=9) <= rows_only
        return
    of_tokens = [pool for pool in pools if pool in TOKEN_POOLS]
    of_one, of_two = of_tiles("full"), of_tiles("full", "swa")
    walks = [of_one + (len(of_tokens) - 1) * (of_two - of_one) if of_tokens else 0]
    walks += [of_tiles(pool) for pool in ("c4", "c128") if pool in pools]
    assert of_tiles(*pools) == sum(walks)


@pytest.mark.parametrize("op", ["compress_metadata", "verify_step"])
@pytest.mark.parametrize("pools", SUBSETS, ids=NAMES)
def test_groups_without_a_pool_cost_their_positions(launches, op, pools):
    def of_more(existing, size):
        return launches.syncs(op, existing, **{size: LONG}) - launches.syncs(op, existing)

    positions = of_more((), "tokens")
    assert positions > 0
    for pool in ("c4", "c128"):
        if pool in pools:
            assert of_more(pools, pool) > positions
        else:
            assert of_more(pools, pool) == positions


@pytest.mark.parametrize("pools", SUBSETS, ids=NAMES)
def test_table_writes_walk_for_pools_that_exist(ascend_sim, pools):
    def syncs(existing):
        layout = KVLayout(
            page_size=16, sliding_window=20, max_requests=1, max_context_len=LONG, num_pages=dict.fromkeys(existing, 8)
        )
        loc = OutCacheLoc(*(int32(LONG // TOKENS_PER_SLOT[pool] if pool in existing else 0) for pool in POOLS))
        row = [torch.tensor([value]) for value in (0, 0, LONG)]
        dsv4_npu_ops.write_req_tables(dsv4_npu_ops.RequestTables(layout), *row, loc)
        (counters,) = ascend_sim.take_counters()
        # A page of 16 slots is one entry.
        assert counters["mte3_bytes"] == sum(4 * -(-len(slots) // 16) for slots in tensors_of(loc))
        return counters["flags_set"]

    ascend_sim.force_blocks(1)
    # Pools of one total share the scan of the rows; at most one more between the pieces of a pool and of the next.
    alone = [syncs((pool,)) - syncs(()) for pool in pools]
    assert max(alone, default=0) <= syncs(pools) - syncs(()) <= sum(alone) + max(0, len(pools) - 1)
    ascend_sim.force_blocks(0)

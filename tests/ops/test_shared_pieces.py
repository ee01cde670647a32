"""No two blocks write into one 32-byte piece of an output whose rows are as many as fill whole pieces."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

import cache_cost_cases
import rope_cost_cases
import step_cost_cases

import dsv4_npu_ops

pytestmark = pytest.mark.simulated_only

CASES = {
    "reserve_extend of a step": lambda: cache_cost_cases.reserve_extend(64, 2050, 4, "verify"),
    "map_full_to_swa": lambda: cache_cost_cases.map_full_to_swa(2, 0, 4096, "prefill"),
    "compressor_metadata": lambda: step_cost_cases.compressor_metadata(64, 4, 4),
    "draft_steps": lambda: step_cost_cases.draft_steps(64, 1, 3, "table"),
    "rope_gather": lambda: rope_cost_cases.rope_gather(256, "scattered"),
}


def shared_pieces(launch):
    return sum(part["shared_pieces"] for part in launch["traffic"].values())


@pytest.mark.parametrize("blocks", [2, 7, 40])
@pytest.mark.parametrize("case", CASES)
def test_blocks_share_no_piece(ascend_sim, case, blocks):
    build = CASES[case]()
    ascend_sim.force_blocks(blocks)
    ascend_sim.take_counters()
    build.run()
    ascend_sim.force_blocks(0)
    assert shared_pieces(ascend_sim.take_counters()[-1]) == 0


@pytest.mark.parametrize("dim, dtype", [(1, torch.float32), (3, torch.bfloat16), (16, torch.bfloat16)])
def test_short_rows_share_no_piece(ascend_sim, dim, dtype):
    table = torch.randn(100, dim).to(dtype)
    ascend_sim.force_blocks(7)
    ascend_sim.take_counters()
    dsv4_npu_ops.rope_gather(table, table, torch.randint(0, 100, (160,)))
    ascend_sim.force_blocks(0)
    assert shared_pieces(ascend_sim.take_counters()[-1]) == 0


def test_a_shared_piece_is_counted(ascend_sim):
    """Entries of one table row that two blocks write."""
    table = torch.zeros(1, 64, dtype=torch.int32)
    tables = dsv4_npu_ops.RequestTables.of({"full": dsv4_npu_ops.layout.SlotTable(table, 16)}, max_context_len=64)
    rows = tuple(torch.tensor([value]) for value in (0, 3, 35))
    loc = dsv4_npu_ops.OutCacheLoc(torch.arange(16, 48, dtype=torch.int32), *[torch.zeros(0, dtype=torch.int32)] * 5)
    ascend_sim.force_blocks(2)
    ascend_sim.take_counters()
    dsv4_npu_ops.write_req_tables(tables, *rows, loc)
    ascend_sim.force_blocks(0)
    assert shared_pieces(ascend_sim.take_counters()[-1]) == 1

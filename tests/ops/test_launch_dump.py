"""A saved call holds all that is needed to repeat it, and the replay tool says whether results differ."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ascend_backend import replay

import dsv4_npu_ops as d
from dsv4_npu_ops.layout import POOLS

TESTS = Path(__file__).resolve().parents[1]
OUT = [argument.name for argument in torch.ops.dsv4_npu_ops.step.default._schema.arguments].index("out")


@pytest.fixture
def saved(tmp_path):
    """Three saved calls: a gather that returns its rows, a write into tables with wide rows, and a step that fills a
    list of buffers from them."""
    cos, sin = torch.randn(40, 16), torch.randn(40, 16)
    wide = {
        pool: d.SlotTable(torch.full((3, 80), -7, dtype=torch.int32)[:, :columns], 16)
        for pool, columns in zip(POOLS, (64, 64, 16, 1, 64, 64), strict=True)
    }
    tables = d.RequestTables.of(wide, max_context_len=64)
    rows = torch.tensor([2, 0]), torch.tensor([4, 0]), torch.tensor([9, 5])
    loc = d.OutCacheLoc(*(torch.arange(100, 100 + n, dtype=torch.int32) for n in (10, 10, 2, 0, 10, 10)))
    out = d.Step(out_swa_loc=torch.full((3,), -7), positions=torch.full((3,), -7))
    with d.dump_launches(tmp_path):
        d.rope_gather(cos, sin, torch.tensor([5, 39, 0]), inverse=True)
        d.write_req_tables(tables, *rows, loc)
        d.build_step(tables, d.StepRows.verify(torch.tensor([7]), 2), out, req_pool_indices=torch.tensor([2]))
        cos.zero_()
        wide["swa"].table.fill_(-8)
    return sorted(tmp_path.iterdir())


def test_a_saved_call_holds_arguments_before_and_everything_after(saved):
    assert [path.name for path in saved] == ["000000-rope_gather.pt", "000001-write_req_tables.pt", "000002-step.pt"]
    record = replay.load(saved[1])
    (before, _), (after, _, results) = record["before"], record["after"]
    assert before[0][0].stride() == (80, 1)
    assert before[0][0].eq(-7).all()
    assert after[0][0][2].tolist() == [-7] * 4 + [100, 101, 102, 103, 104] + [-7] * 55
    assert results is None


def test_lists_of_tensors_are_saved_with_what_they_held(saved):
    record = replay.load(saved[2])
    (before, _), (after, _, _) = record["before"], record["after"]
    assert before[0][1][2].tolist() == [-7] * 4 + [100, 101, 102, 103, 104] + [-7] * 55
    assert [buffer.tolist() for buffer in before[OUT]] == [[-7] * 3] * 2
    assert [buffer.tolist() for buffer in after[OUT]] == [[103, 104, 0], [7, 8, 0]]


def test_a_repeated_call_agrees_and_a_changed_one_is_pointed_at(saved):
    for path in saved:
        record = replay.load(path)
        assert replay.differences(record["after"], replay.repeat(record)) == []
    record["after"][0][OUT][0][1] += 1  # out_swa_loc
    (line,) = replay.differences(record["after"], replay.repeat(record))
    assert line == f"[0][{OUT}][0]: 1 bytes differ, the first at byte 8"


def test_only_the_calls_asked_for_are_saved(tmp_path):
    rows = torch.ones(2, 2)
    with d.dump_launches(tmp_path, ops=["step"]):
        d.rope_gather(rows, rows, torch.tensor([0]))
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_format_is_refused(tmp_path):
    torch.save({"format": 0}, tmp_path / "old.pt")
    with pytest.raises(ValueError, match="has format 0, expected 1"):
        replay.load(tmp_path / "old.pt")


@pytest.mark.simulated_only
def test_the_tool_compares_recorded_calls_with_cpu_and_simulator(saved):
    record = replay.load(saved[0])
    record["after"][2][0][1, 3] += 1.0
    torch.save(record, saved[0])
    command = [sys.executable, "-m", "ascend_backend.replay", "--blocks", "2", *map(str, reversed(saved))]
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    right, wrong = done.stdout.split(f"{saved[0]}:\n")
    agree = "agrees with the recorded call\n"
    assert right == "".join(f"{path}:\n  cpu: {agree}  simulated: {agree}" for path in (saved[2], saved[1]))
    assert wrong.count("differs from the recorded call\n    [2][0]: ") == 2

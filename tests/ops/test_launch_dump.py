"""A saved call holds all that is needed to repeat it, and the replay tool says whether results differ."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ascend_backend import replay

import dsv4_npu_ops as d

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def saved(tmp_path):
    """Two saved calls: a gather that returns its rows, and a write into tables with wide rows."""
    cos, sin = torch.randn(40, 16), torch.randn(40, 16)
    wide = [torch.full((3, 80), -7, dtype=torch.int32)[:, :columns] for columns in (64, 64, 16, 1, 64, 64)]
    rows = torch.tensor([2, 0]), torch.tensor([4, 0]), torch.tensor([9, 5])
    loc = [torch.arange(100, 100 + n, dtype=torch.int32) for n in (10, 10, 2, 0, 10, 10)]
    with d.dump_launches(tmp_path):
        d.rope_gather(cos, sin, torch.tensor([5, 39, 0]), inverse=True)
        torch.ops.dsv4_npu_ops.write_req_tables(*wide, *rows, *loc)
        cos.zero_()
    return sorted(tmp_path.iterdir())


def test_a_saved_call_holds_arguments_before_and_everything_after(saved):
    assert [path.name for path in saved] == ["000000-rope_gather.pt", "000001-write_req_tables.pt"]
    record = replay.load(saved[1])
    (before, _), (after, _, results) = record["before"], record["after"]
    assert before[0].stride() == (80, 1)
    assert before[0].eq(-7).all()
    assert after[0][2].tolist() == [-7] * 4 + [100, 101, 102, 103, 104] + [-7] * 55
    assert results is None


def test_a_repeated_call_agrees_and_a_changed_one_is_pointed_at(saved):
    for path in saved:
        record = replay.load(path)
        assert replay.differences(record["after"], replay.repeat(record)) == []
    record["after"][0][1][0, 4] += 1  # swa_table
    (line,) = replay.differences(record["after"], replay.repeat(record))
    assert line == "[0][1]: 1 bytes differ, the first at byte 16"


def test_only_the_calls_asked_for_are_saved(tmp_path):
    rows = torch.ones(2, 2)
    with d.dump_launches(tmp_path, ops=["verify_step"]):
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
    assert right == f"{saved[1]}:\n  cpu: {agree}  simulated: {agree}"
    assert wrong.count("differs from the recorded call\n    [2][0]: ") == 2

"""python -m dsv4_npu_ops doctor."""

import importlib.metadata
import subprocess
import sys

import pytest
import torch

from dsv4_npu_ops import doctor
from dsv4_npu_ops.doctor.checks import CHECKS


def test_the_command_names_what_is_installed_and_tries_every_op(tmp_path):
    command = [sys.executable, "-m", "dsv4_npu_ops", "doctor"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"torch          {importlib.metadata.version('torch')}" in done.stdout
    assert all(f"{name:20} right" in done.stdout for name in CHECKS)


def test_a_wrong_value_and_an_error_are_said_and_fail(monkeypatch, capsys):
    monkeypatch.setitem(CHECKS, "allocation", lambda device: "full is [1], expected [2]")
    monkeypatch.setitem(CHECKS, "RoPE rows", lambda device: torch.zeros(1)[5])
    assert doctor.report("cpu") == 1
    printed = capsys.readouterr().out
    assert "allocation           WRONG: full is [1], expected [2]" in printed
    assert "RoPE rows            WRONG: IndexError" in printed


def test_a_device_that_is_not_there_is_no_wrong_value(capsys):
    assert doctor.report("npu") == 1
    printed = capsys.readouterr().out
    assert "not tried: RuntimeError" in printed and "WRONG" not in printed


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_can_fail(name, monkeypatch):
    """Each looks at values: an op that writes something else is noticed."""
    calls = []

    def spoiled(**pairs):
        calls.append(pairs)
        return checks_wanted(
            **{key: (None if value is None else value + 1, want) for key, (value, want) in pairs.items()}
        )

    checks = sys.modules["dsv4_npu_ops.doctor.checks"]
    checks_wanted = checks._wanted
    monkeypatch.setattr(checks, "_wanted", spoiled)
    assert CHECKS[name](torch.device("cpu")) is not None and calls


def test_hooks_that_cannot_be_looked_at_do_not_end_the_report(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_version", lambda package: "0.5.23")
    monkeypatch.setitem(sys.modules, "sglang", None)
    assert doctor.report("cpu") == 0
    assert "cannot be looked at here" in capsys.readouterr().out


def test_a_bad_mode_is_said(monkeypatch, capsys):
    monkeypatch.setenv("DSV4_NPU_OPS_SGLANG", "sometimes")
    doctor.report("cpu")
    assert "DSV4_NPU_OPS_SGLANG is 'sometimes', expected one of off, on, shadow" in capsys.readouterr().out

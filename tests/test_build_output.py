"""What `make wheel` shows of a build."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "distribution"))

import wheels

SAYS = r"printf '[0/2] Re-checking globbed directories\n  [2/21] Building a.o\nnote: b\n[ 50%%] Building c.o\n'"


def test_a_build_that_works_shows_how_far_it_is_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    wheels.run_quietly(["sh", "-c", SAYS], dict(os.environ))
    assert capfd.readouterr() == ("compiled 2 of 21\ncompiled 50%\n", "")


def test_a_build_that_fails_shows_all_that_it_said() -> None:
    command = ["sh", "-c", f"{SAYS}; echo 'a.cpp:1: error' >&2; exit 3"]
    with pytest.raises(SystemExit) as failed:
        wheels.run_quietly(command, dict(os.environ))
    said = str(failed.value).splitlines()
    assert said[1:5] == ["  [2/21] Building a.o", "note: b", "[ 50%] Building c.o", "a.cpp:1: error"]
    assert said[5].startswith("failed: sh -c printf")

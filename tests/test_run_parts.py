"""The driver of `make test`: a line for each part, and a failure if one fails."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import run_parts

RUN_PARTS = Path(__file__).parent / "run_parts.py"

# Stands in for make: prints what pytest would, and fails where it would.
MAKE = """
for target; do :; done  # the last argument
case "$target" in
    twice)
        printf 'dots ..\\n\\033[32m40 passed\\033[0m, 1 skipped in 3.21s\\n'
        echo '2 passed, 1 warning in 61.00s (0:01:01)' ;;
    broken) echo '1 failed, 3 passed, 1 error in 0.10s'; exit 2 ;;
    warns) echo 'dots ..'; echo 'a warning' >&2 ;;
    silent) echo '3 passed in review' ;;
    unset) exit 7 ;;
    built) test "$1" = BUILT=1 || exit 1 ;;
    unbuilt) test "$1" != BUILT=1 || exit 1 ;;
esac
"""


@pytest.fixture
def run(tmp_path):
    make = tmp_path / "make.sh"
    make.write_text(MAKE)

    def call(*arguments):
        command = [sys.executable, RUN_PARTS, "--make", f"sh {make}", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
        call.printed = done.stdout
        lines = [line.removeprefix("== ") for line in done.stdout.splitlines() if line.startswith("== ")]
        return done.returncode, [(line.partition(";")[0], line.partition("FAILED")[2]) for line in lines]

    return call


def test_each_part_is_counted_and_named_again_at_the_end(run):
    twice, silent = ("twice: 42 passed, 0 failed, 1 skipped", ""), ("silent: no tests", "")
    total = ("all: 42 passed, 0 failed, 1 skipped", "")
    assert run("--setup", "silent", "twice") == (0, [silent, twice, silent, twice, total])


def test_a_part_that_fails_fails_the_run_and_stops_no_other(run):
    status, lines = run("broken", "twice")
    assert status == 1
    assert lines[:2] == [
        ("broken: 3 passed, 2 failed, 0 skipped", ", exit status 2"),
        ("twice: 42 passed, 0 failed, 1 skipped", ""),
    ]
    assert lines[-1] == ("all: 45 passed, 2 failed, 1 skipped", ", exit status 2")


def test_nothing_runs_after_a_set_up_that_fails(run):
    assert run("--setup", "unset", "--setup", "silent", "twice") == (
        1,
        [("unset: no tests", ", exit status 7")] * 1
        + [
            ("unset: no tests", ", exit status 7"),
            ("all: no tests", ", exit status 7"),
        ],
    )


def test_parts_know_that_the_set_up_is_done(run):
    status, _ = run("--setup", "unbuilt", "built")
    assert status == 0


def test_what_a_part_prints_is_shown_with_its_warnings(run):
    status, lines = run("warns")
    assert (status, len(lines)) == (0, 3)
    assert "dots ..\na warning\n" in run.printed


def test_progress_is_shown_as_it_comes(tmp_path):
    """The part ends once its first dot has been read here, and fails after 10 s."""
    part = tmp_path / "part.sh"
    part.write_text("printf .; i=0; until test -e read; do i=$((i + 1)); test $i -lt 200 || exit 1; sleep 0.05; done")
    command = [sys.executable, RUN_PARTS, "--make", f"sh {part}", "part"]
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, env=buffered) as run:
        assert run.stdout.read(1) == b"."
        (tmp_path / "read").touch()
        run.stdout.read()
    assert run.returncode == 0


def test_what_the_parts_took_is_added_up():
    parts = [
        run_parts.Result("a", 0, 61.4, 100.4, Counter(passed=3)),
        run_parts.Result("b", 2, 2.2, 5.2, Counter(passed=1, failed=1)),
    ]
    assert str(parts[0]) == "a: 3 passed, 0 failed, 0 skipped; 61 s, 100 s of processor time"
    assert str(run_parts.total_of(parts)) == (
        "all: 4 passed, 1 failed, 0 skipped; 64 s, 106 s of processor time; FAILED, exit status 2"
    )


def test_a_part_has_taken_what_its_processes_have(tmp_path):
    busy = tmp_path / "busy.sh"
    busy.write_text("sleep 0.4; i=0; while test $i -lt 100000; do i=$((i + 1)); done")
    result = run_parts.run("part", ["sh", str(busy)])
    assert result.seconds > 0.4 and 0.01 < result.processor_seconds < result.seconds

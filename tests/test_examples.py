"""The examples run, and say what the pages about them say."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments: str) -> str:
    """What an example prints."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT / "examples", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_loop_serves_everybody_and_gives_all_pages_back(tmp_path: Path) -> None:
    plot = tmp_path / "pages.svg"
    wanted = ["--plot", str(plot)] if find_spec("matplotlib") else []
    output = run("engine_loop.py", "--requests", "10", *wanted)
    assert re.search(r"round +20  done +\d+/10  running \d  full +\d+/40  swa ", output)
    rounds, retractions = map(int, re.search(r"10 requests in (\d+) rounds, (\d+) retractions", output).groups())
    assert rounds > 20 and retractions > 0
    assert output.endswith("pages in use at the end: 0\n")
    if wanted:
        assert "c128_state" in plot.read_text() or plot.stat().st_size > 1000


def test_a_parked_prefix_can_be_shared_and_a_running_one_cannot() -> None:
    assert run("prefix_cache.py").splitlines() == [
        "parked at 256, pages to copy: {'c128': 1}",
        "from the running request: 3 of 768 lengths give a start above 0",
        "from the parked row: 256, and of 1 token less 0",
        "a later request starts at 256, pages to copy: {'c128': 1}",
        "the parked row keeps {'full': 8, 'swa': 4, 'c4': 2, 'c128': 1, 'c4_state': 1, 'c128_state': 0}",
        "afterwards 0",
        "parked at 250, pages to copy: {'full': 1, 'swa': 1, 'c4': 1, 'c128': 1, 'c4_state': 1, 'c128_state': 1}",
    ]


def test_the_demo_finds_its_tokens_right() -> None:
    output = run("demo.py", "--new-tokens", "8")
    assert output.count("\nok   ") == 3 and "FAIL" not in output

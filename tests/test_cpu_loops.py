"""What every CPU loop leaves to one function: a size of 0 is legal everywhere, and each place would forget it once."""

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[1] / "csrc"
SOURCES = sorted(CSRC.rglob("*.cpp")) + sorted(CSRC.rglob("*.h"))


def sources_with(pattern: str) -> dict[Path, list[str]]:
    """What matches in each source; the rest of a line comes with it."""
    found = {path: re.findall(pattern + r"[^\n]*(?:\n[^\n]*)?", path.read_text()) for path in SOURCES}
    return {path: matches for path, matches in found.items() if matches}


@pytest.mark.parametrize("function", ["memcpy", "memmove", "memset"])
def test_nothing_hands_the_null_pointer_of_an_empty_tensor_to_the_c_library(function):
    """std::copy_n and std::fill_n take it for a size of 0; the functions of C must not get it."""
    assert sources_with(rf"\b{function}\(") == {}


def test_every_parallel_loop_takes_its_grain_from_one_function():
    """A row may have no elements, and a grain is a quotient."""
    loops = sources_with(r"\bat::parallel_for\(")
    assert sum(len(matches) for matches in loops.values()) >= 6
    for path, matches in loops.items():
        grains = re.findall(r"\w*_per_thread\b", " ".join(match.split("[&]")[0] for match in matches))
        assert len(grains) == len(matches), path
        for grain in set(grains) - {"rows_per_thread"}:
            assert re.search(rf"\b{grain} =\s+(cpu::)?rows_per_thread\(", path.read_text()), (path, grain)

"""What every CPU loop leaves to one function: a size of 0 is legal everywhere, and each place would forget it once."""

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[1] / "csrc"
SOURCES = sorted(CSRC.rglob("*.cpp")) + sorted(CSRC.rglob("*.h"))


def matches(pattern: str) -> dict[Path, int]:
    """How often each source has the pattern."""
    counts = {path: len(re.findall(pattern, path.read_text())) for path in SOURCES}
    return {path: count for path, count in counts.items() if count}


@pytest.mark.parametrize("function", ["memcpy", "memmove", "memset"])
def test_nothing_hands_the_null_pointer_of_an_empty_tensor_to_the_c_library(function):
    """std::copy_n and std::fill take it for a size of 0; the functions of C must not get it."""
    assert matches(rf"\b{function}\(") == {}


def test_every_parallel_loop_takes_its_grain_from_one_function():
    """A row may have no elements, and a grain is a quotient."""
    loops = matches(r"\bat::parallel_for\(")
    assert sum(loops.values()) >= 6
    grains = matches(r"\brows_per_thread\(")
    assert {path: grains.get(path) for path in loops} == loops

"""What differs between the versions of SGLang that the plug-in knows (docs/sglang.md has the same as a table)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeVar

from dsv4_npu_ops.engines.hooks import version_tuple

FIRST, LAST = "0.5.18", "0.5.23"
"""Versions with tables of slots, derived pools and rings, from and to."""

_ROTATES_AT_LAST_TOKEN = "0.5.19"
"""Until here a verify rotates a group at its last token instead of its first."""

_MIRRORS_LENGTHS = "0.5.19"
"""From here graphs of decodes have their lengths on the host too."""

Values = TypeVar("Values")


@cache
def installed() -> tuple[int, ...]:
    """Version of the SGLang that is running."""
    import sglang

    return version_tuple(sglang.__version__)


def without_known_faults(fields: Mapping[str, Values], is_verify: bool) -> dict[str, Values]:
    """Fields by name, less those in which the running SGLang is known to be wrong."""
    wrong = is_verify and installed() <= version_tuple(_ROTATES_AT_LAST_TOKEN)
    return {name: value for name, value in fields.items() if not (wrong and name.startswith("positions_c"))}


def mirrors_lengths() -> bool:
    """Whether a refreshed decode or draft extend has ``seq_lens_cpu_int``."""
    return installed() >= version_tuple(_MIRRORS_LENGTHS)

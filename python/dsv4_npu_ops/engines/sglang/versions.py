"""What differs between the versions of SGLang that the plug-in knows (docs/sglang.md has the same as a table)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeVar

from dsv4_npu_ops.engines.hooks import version_tuple

_STATES_MISS_A_GROUP = "0.5.17"
"""Until here the table of state pages of a chunk starts at the tail of its end: its first groups miss their states."""

_ROTATES_AT_LAST_TOKEN = "0.5.19"
"""Until here a verify rotates a group at its last token instead of its first."""

_MIRRORS_LENGTHS = "0.5.19"
"""From here graphs of decodes have their lengths on the host too."""

_DECODE_READS_BEHIND_LISTS = "0.5.18"
"""Here a decode that uses up a list of free pages looks one up behind it for rows that need none."""

Values = TypeVar("Values")


@cache
def installed() -> tuple[int, ...]:
    """Version of the SGLang that is running."""
    import sglang

    return version_tuple(sglang.__version__)


def without_known_faults(fields: Mapping[str, Values], is_verify: bool) -> dict[str, Values]:
    """Fields by name, less those in which the running SGLang is known to be wrong."""
    wrong: tuple[str, ...] = (
        ("positions_c",) if is_verify and installed() <= version_tuple(_ROTATES_AT_LAST_TOKEN) else ()
    )
    wrong += ("c4_state_page", "c128_state_page") if installed() <= version_tuple(_STATES_MISS_A_GROUP) else ()
    return {name: value for name, value in fields.items() if not (wrong and name.startswith(wrong))}


def faults_mended() -> list[str]:
    """What the running SGLang gets wrong and the plug-in does not, a sentence each."""
    faults = []
    if installed() <= version_tuple(_ROTATES_AT_LAST_TOKEN):
        faults.append("this SGLang rotates the groups of a verify at their last token; they are rotated at their first")
    if installed() <= version_tuple(_STATES_MISS_A_GROUP):
        faults.append("this SGLang leaves the states in front of a chunk out of its page table; they are in it")
    return faults


def decode_reads_behind_lists() -> bool:
    """Whether a decode's slots are not to be compared where it uses up a list of free pages."""
    return installed() == version_tuple(_DECODE_READS_BEHIND_LISTS)


def mirrors_lengths() -> bool:
    """Whether a refreshed decode or draft extend has ``seq_lens_cpu_int``."""
    return installed() >= version_tuple(_MIRRORS_LENGTHS)

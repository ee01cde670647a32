"""One launch of each op at the shapes of a large step, with what it must move through global memory at least."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from cache_cost_cases import (
    c4_slots_from_full,
    map_full_to_swa,
    release_pages,
    reserve_extend,
    share_pages,
    write_req_tables,
)
from moved import WIDTH, CostCase
from rope_cost_cases import apply_rotary, rope_gather, rope_tables
from step_cost_cases import advance_step, compressor_metadata, draft_steps, draft_steps_apart, step

LARGE: list[tuple[Callable[..., CostCase], tuple[Any, ...]]] = [
    *((step, (rows, part, "verify", WIDTH)) for part in ("metadata", "slots", "all") for rows in (64, 1024)),
    (step, (64, "metadata", "decode", 1)),
    (step, (32, "metadata", "prefill", 1024)),
    (step, (16, "all", "verify", WIDTH, 1 << 20)),
    (reserve_extend, (64, 8192, WIDTH, "verify")),
    (reserve_extend, (1024, 1024, WIDTH, "verify")),
    (reserve_extend, (32, 0, 1024, "prefill")),
    (release_pages, (64, 1024, "evict")),
    (release_pages, (64, 8192, "free")),
    (release_pages, (1024, 1024, "free")),
    (release_pages, (1, 131072, "free")),
    *(
        (write_req_tables, (*shape, kind))
        for shape in ((64, 8192, WIDTH), (1024, 1024, WIDTH), (32, 2048, 1024))
        for kind in ("slots", "pages")
    ),
    (rope_gather, (4096, "scattered")),
    (rope_gather, (16384, "sequential")),
    (rope_tables, (16384,)),
    (apply_rotary, (256,)),
    *((advance_step, (rows, hidden)) for rows, hidden in ((64, 0), (64, 7168), (1024, 0))),
    (draft_steps, (64, 1, 3, "table")),
    (draft_steps, (64, 4, 3, "reservation")),
    (draft_steps, (1024, 1, 3, "table")),
    *((draft_steps_apart, (rows, 3)) for rows in (64, 1024)),
    (map_full_to_swa, (64, 8192, WIDTH, "verify")),
    (map_full_to_swa, (1024, 1024, WIDTH, "verify")),
    (map_full_to_swa, (32, 0, 1024, "prefill")),
    (map_full_to_swa, (1, 0, 131072, "prefill")),
    (map_full_to_swa, (32, 0, 1024, "free")),
    (share_pages, (64, 8192)),
    (share_pages, (1, 131072)),
    (c4_slots_from_full, (64, WIDTH)),
    (c4_slots_from_full, (32, 1024)),
    (c4_slots_from_full, (1, 131072)),
    *((compressor_metadata, (b, n, ratio)) for b, n in ((64, WIDTH), (1024, WIDTH), (32, 1024)) for ratio in (4, 128)),
]
"""Steps of 64 and 1024 requests with a context of 8192 where it matters, one of 16 with a million tokens, prefills of
32, RoPE of many tokens."""

SMALL: list[tuple[Callable[..., CostCase], tuple[Any, ...]]] = [
    *((step, (5, part, "verify", WIDTH)) for part in ("metadata", "slots", "all")),
    (step, (3, "metadata", "prefill", 300)),
    (reserve_extend, (3, 500, WIDTH, "verify")),
    (reserve_extend, (3, 0, 700, "prefill")),
    (release_pages, (3, 900, "free")),
    *((write_req_tables, (5, 512, WIDTH, kind)) for kind in ("slots", "pages")),
    (rope_gather, (50, "scattered")),
    (rope_tables, (40,)),
    (apply_rotary, (3,)),
    (advance_step, (5, 40)),
    (draft_steps, (5, 1, 3, "table")),
    (draft_steps, (5, 2, 3, "reservation")),
    (draft_steps_apart, (5, 3)),
    (map_full_to_swa, (3, 300, WIDTH, "verify")),
    (map_full_to_swa, (3, 0, 300, "free")),
    (share_pages, (3, 900)),
    (c4_slots_from_full, (3, 100)),
    (compressor_metadata, (5, 40, 4)),
]
"""Every op, small: for comparing kernels."""


def cases(small: bool, ops: Iterable[str] = ()) -> Iterator[CostCase]:
    """The cases of the chosen ops, or of all. Each draws the same inputs wherever it is made."""
    wanted = set(ops)
    for build, arguments in SMALL if small else LARGE:
        if not wanted or build.__name__ in wanted:
            torch.manual_seed(0)
            yield build(*arguments)

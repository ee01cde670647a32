"""RoPE rows of a step, by one launch for cosine and sine; and, where asked for, DeepSeek's table for ratio 0."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import dsv4_npu_ops.ops  # noqa: F401  (loading it registers torch.ops.dsv4_npu_ops)
from dsv4_npu_ops.engines.hooks import Hook, Unexpected
from dsv4_npu_ops.engines.shadow import compare

_MODULE = "vllm_ascend.ops.rope_dsv4"
_VARIABLE = "DSV4_NPU_OPS_VLLM_ASCEND_ROPE"
_GROUP = "default"


def get_cos_and_sin_dsa(
    original: Callable[..., Any], positions: Any, use_cache: bool = False, draft_index: int | None = None
) -> tuple[Any, Any]:
    """``get_cos_and_sin_dsa``: rows of every table at positions of tokens, in the engine's buffers or new ones."""
    rows = RopeRows.at(positions, use_cache, draft_index)
    for gather in rows.gathers():
        gather()
    return rows.proxies


@dataclass(eq=False, slots=True)
class RopeRows:
    """Rows of every table at positions of tokens, not yet gathered.

    Attributes:
        positions: int64 ``[tokens]``.
        proxies: the engine's, of cosines and of sines.
        tables: cosines and sines ``[positions, D]``, and where their rows go, ``[tokens, D]``.
    """

    positions: Tensor
    proxies: tuple[Any, Any]
    tables: list[tuple[Tensor, Tensor, Tensor, Tensor]]

    @classmethod
    def at(cls, positions: Tensor, use_cache: bool = False, draft_index: int | None = None) -> RopeRows:
        """Into the engine's buffers (``use_cache``), or new ones.

        Raises:
            Unexpected: something is not where this plug-in knows it.
        """
        from vllm_ascend.ops import rope_dsv4

        rows = _buffers(rope_dsv4._ROPE_STATE, positions, use_cache, draft_index)
        proxies = rope_dsv4.RopeDataProxy(rows, is_cos=True), rope_dsv4.RopeDataProxy(rows, is_cos=False)
        full = rope_dsv4._ROPE_STATE.full_rope_cache
        tables = [(*_flat(full[key]), *_flat(pair)) for key, groups in rows.items() for pair in groups.values()]
        return cls(positions, proxies, tables)

    def gathers(self) -> list[Callable[[], object]]:
        """A launch for each table."""
        gather = torch.ops.dsv4_npu_ops.rope_gather.out
        return [
            partial(gather, cos, sin, self.positions, inverse=False, cos_out=cos_rows, sin_out=sin_rows)
            for cos, sin, cos_rows, sin_rows in self.tables
        ]


def _flat(tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """``[rows, 1, 1, D]`` as ``[rows, D]``."""
    width = tables[0].shape[-1]
    return tables[0].view(-1, width), tables[1].view(-1, width)


def _buffers(state: Any, positions: Any, use_cache: bool, draft_index: int | None) -> dict[str, Any]:
    """Where rows go, by table and group: the engine's buffers, or new ones."""
    if not isinstance(positions, Tensor) or positions.dim() != 1 or not positions.is_contiguous():
        raise Unexpected("positions that are no contiguous vector")
    kept = state.runtime_buffer if draft_index is None else state.spec_runtime_buffer
    count = positions.shape[0]
    rows: dict[str, Any] = {}
    for key, groups in state.registry_summary.items():
        if key not in state.full_rope_cache:
            continue
        pair = kept.get(key, {}).get(_GROUP) if use_cache else None
        if _GROUP not in groups or (use_cache and pair is None):
            rows[key] = {}
        elif pair is None:
            like = state.full_rope_cache[key][0]
            rows[key] = {_GROUP: tuple(like.new_empty(count, *like.shape[1:]) for _ in range(2))}
        else:
            cos, sin = pair if draft_index is None else (pair[0][draft_index - 1], pair[1][draft_index - 1])
            if count > cos.shape[0]:
                raise Unexpected(f"{count} positions and buffers of {cos.shape[0]}")
            rows[key] = {_GROUP: (cos[:count], sin[:count])}
    return rows


def shadow_get_cos_and_sin_dsa(
    original: Callable[..., Any], positions: Any, use_cache: bool = False, draft_index: int | None = None
) -> tuple[Any, Any]:
    """The engine's rows are used; ours are gathered beside them and compared."""
    theirs = original(positions, use_cache, draft_index)

    def again() -> dict[str, Tensor]:
        rows = RopeRows.at(positions)
        for gather in rows.gathers():
            gather()
        return _named(rows.proxies[0]._data)

    ours = again()
    named = {name: rows for name, rows in _named(theirs[0]._data).items() if name in ours}
    compare("vLLM-Ascend", "get_cos_and_sin_dsa", named, ours, again)
    return theirs


def _named(rows: dict[str, Any]) -> dict[str, Tensor]:
    return {
        f"{table} of {key}": pair[i]
        for key, groups in rows.items()
        for pair in groups.values()
        for i, table in enumerate(("cos", "sin"))
    }


def wants_deepseeks_tables() -> bool:
    """Whether layers of ratio 0 are to rotate as DeepSeek's code does, without YaRN's factor.

    Raises:
        ValueError: another value of ``DSV4_NPU_OPS_VLLM_ASCEND_ROPE`` than ``engine`` or ``deepseek``.
    """
    given = os.environ.get(_VARIABLE) or "engine"
    if given not in ("engine", "deepseek"):
        raise ValueError(f"{_VARIABLE} is {given!r}, expected one of engine, deepseek")
    return given == "deepseek"


def init_rotary(
    original: Callable[..., Any],
    self: Any,
    vllm_config: Any,
    layername: str,
    head_size: int,
    rotary_dim: int,
    max_position_embeddings: int,
    base: int,
    scaling_factor: float,
    rope_groups: list[str] | None = None,
    **extra_kwargs: Any,
) -> None:
    """``ComplexExpRotaryEmbedding.__init__``: the table of a base that no compressed layer uses loses YaRN's factor."""
    from vllm_ascend.ops.rope_dsv4 import _ROPE_STATE

    before = set(_ROPE_STATE.full_rope_cache)
    original(
        self,
        vllm_config,
        layername,
        head_size,
        rotary_dim,
        max_position_embeddings,
        base,
        scaling_factor,
        rope_groups,
        **extra_kwargs,
    )
    if not wants_deepseeks_tables() or set(rope_groups or [_GROUP]) != {_GROUP}:
        return
    for key in set(_ROPE_STATE.full_rope_cache) - before:
        cos, sin = _ROPE_STATE.full_rope_cache[key]
        frequencies = 1.0 / base ** (torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim)
        angles = torch.arange(cos.shape[0]).float()[:, None] * frequencies
        cos.copy_(angles.cos().repeat_interleave(2, dim=-1).view_as(cos))
        sin.copy_(angles.sin().repeat_interleave(2, dim=-1).view_as(sin))


HOOKS = (
    Hook(f"{_MODULE}.get_cos_and_sin_dsa", get_cos_and_sin_dsa, "0.23.0", "0.23.0", shadow_get_cos_and_sin_dsa),
    Hook(f"{_MODULE}.ComplexExpRotaryEmbedding.__init__", init_rotary, "0.23.0", "0.23.0"),
)

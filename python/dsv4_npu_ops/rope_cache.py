"""RoPE tables that are built once and kept as buffers of a module (docs/spec.md, RoPE)."""

import weakref
from collections.abc import Callable
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from dsv4_npu_ops.graph_capture import is_capturing as _is_capturing
from dsv4_npu_ops.ops.rope_tables import build_rope_tables

_Tables = tuple[str, tuple[Any, ...]]
"""What follows ``cos_`` and ``sin_`` in the names of the buffers, and the content state of the freqs tensor."""


class _Source:
    """One freqs tensor: a weak reference to it, what its content was when read, and its tables' names by dtype."""

    def __init__(self, freqs_cis: Tensor, on_death: Callable[[Any], None]) -> None:
        self.tensor = weakref.ref(freqs_cis, on_death)
        self.tables: dict[torch.dtype, _Tables] = {}


class RopeCache(nn.Module):
    """Builds the cos and sin tables of a freqs tensor on first use and returns the same ones from then on.

    The tables are non-persistent buffers of this module: as a part of a model they move with it (and keep their dtype
    when the model is cast), and they are not in its state dict. A copied or unpickled cache starts empty.

    An entry belongs to one freqs tensor, not to its shape, address or ``id``: two tensors of the same shape have tables
    of their own, and an entry goes when its tensor does. So keep the freqs tensor (as a buffer of its owner, say);
    a view made for each call is another tensor each time.

    A freqs tensor that was modified in place, or given other storage through ``.data``, is read again at the next
    ``get``, into the same table memory where shape and device allow, so that captured graphs see the new values.
    A change that torch does not count (through ``.data`` or numpy, in the same memory) goes unnoticed, and so does any
    in-place change of an inference tensor. Threads may share a cache (docs/spec.md, threads).

    Args:
        is_capturing: tells whether a graph is being captured; default: the current NPU or GPU stream captures, or the
            code runs inside ``dsv4_npu_ops.graph_capture.graph_capture()``.

    Source: docs/spec.md, RoPE.
    """

    def __init__(self, is_capturing: Callable[[], bool] = _is_capturing) -> None:
        super().__init__()
        self._is_capturing = is_capturing
        self._sources: dict[int, _Source] = {}
        self._num_built = 0
        # Around changes. Reentrant: a freqs tensor may die, and take its entry along, while another's tables are built.
        self._changing = RLock()

    def get(self, freqs_cis: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The tables ``(cos, sin)`` of a freqs tensor, ``[max_pos, D]`` each.

        Args:
            freqs_cis: ``[max_pos, D / 2]`` complex64 (see ``build_freqs_cis``).
            dtype: of the tables, float32, float16 or bfloat16.

        Returns:
            The cached tables; do not write to them. New ones are made on the device of ``freqs_cis``.

        Raises:
            RuntimeError: during graph capture, when there are no tables yet or the freqs tensor has changed since.
            ValueError: ``freqs_cis`` or ``dtype`` is not what ``build_rope_tables`` takes.
        """
        if not isinstance(freqs_cis, Tensor):
            raise ValueError(f"RopeCache.get: freqs_cis is {freqs_cis!r}, expected a tensor")
        _, known = self._look_up(freqs_cis, dtype)
        state = _content_state(freqs_cis)
        if known is None or known[1] != state:
            with self._changing:
                known = self._refresh(freqs_cis, dtype, state)
        return getattr(self, f"cos_{known[0]}"), getattr(self, f"sin_{known[0]}")

    def _look_up(self, freqs_cis: Tensor, dtype: torch.dtype) -> tuple[_Source | None, _Tables | None]:
        source = self._sources.get(id(freqs_cis))
        if source is None or source.tensor() is not freqs_cis:
            return None, None
        return source, source.tables.get(dtype)

    def _refresh(self, freqs_cis: Tensor, dtype: torch.dtype, state: tuple[Any, ...]) -> _Tables:
        """Tables of this content, which another thread may have made meanwhile."""
        source, known = self._look_up(freqs_cis, dtype)
        if known is not None and known[1] == state:
            return known
        if self._is_capturing():
            raise RuntimeError(
                f"RopeCache.get: {'no' if known is None else 'outdated'} {dtype} tables for this freqs tensor "
                f"{list(freqs_cis.shape)} during graph capture, expected a get() of it before the capture"
            )
        name = self._build(freqs_cis, dtype, known[0] if known is not None else None)
        if source is None:
            source = self._add_source(freqs_cis)
        tables = source.tables[dtype] = (name, state)
        return tables

    def _build(self, freqs_cis: Tensor, dtype: torch.dtype, name: str | None) -> str:
        """Builds tables, into those called ``name`` if they fit; returns the name of the buffers that hold them."""
        # Ordinary tensors even under inference_mode: those may be refreshed outside it.
        with torch.inference_mode(False), torch.no_grad():
            if name is not None:
                cos, sin = getattr(self, f"cos_{name}"), getattr(self, f"sin_{name}")
                if cos.shape == (freqs_cis.shape[0], 2 * freqs_cis.shape[1]) and cos.device == freqs_cis.device:
                    build_rope_tables(freqs_cis, out=(cos, sin))
                    return name
            cos, sin = build_rope_tables(freqs_cis, dtype)
        if name is None:
            name = f"{str(dtype).removeprefix('torch.')}_{self._num_built}"
            self._num_built += 1
        self.register_buffer(f"cos_{name}", cos, persistent=False)
        self.register_buffer(f"sin_{name}", sin, persistent=False)
        return name

    def _add_source(self, freqs_cis: Tensor) -> _Source:
        # The callback must not keep the cache alive.
        cache, key = weakref.ref(self), id(freqs_cis)

        def forget(reference: weakref.ref) -> None:
            owner = cache()
            if owner is None:
                return
            with owner._changing:
                # By the time this runs, another tensor may have taken the id.
                if key in owner._sources and owner._sources[key].tensor is reference:
                    owner._drop(key)

        self._drop(key)
        self._sources[key] = source = _Source(freqs_cis, forget)
        return source

    def _drop(self, key: int) -> None:
        source = self._sources.pop(key, None)
        for name, _ in source.tables.values() if source is not None else ():
            delattr(self, f"cos_{name}")
            delattr(self, f"sin_{name}")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RopeCache":
        """Moves the tables but does not cast them: their dtype is part of what ``get`` was asked for."""

        def move(table: Tensor) -> Tensor:
            moved = fn(table)
            return moved if moved.dtype == table.dtype else table.to(moved.device)

        return super()._apply(move, recurse)

    def __getstate__(self) -> dict[str, Any]:
        """Without the tables: they belong to tensors that a copy does not refer to."""
        state = {**self.__dict__, "_sources": {}, "_buffers": {}, "_non_persistent_buffers_set": set()}
        del state["_changing"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._changing = RLock()


def _content_state(freqs_cis: Tensor) -> tuple[Any, ...]:
    """Differs between two calls if the tensor was modified in place or got other storage, shape or device."""
    version = None if freqs_cis.is_inference() else freqs_cis._version
    return version, freqs_cis.data_ptr(), freqs_cis.shape, freqs_cis.stride(), freqs_cis.device

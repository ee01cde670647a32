"""The tensors behind the six pools: what every layer of a DeepSeek-V4 model keeps at the slots of the tables.

The allocator hands out slots per pool, not per layer: one slot addresses the same row in every layer's tensor of that
pool. Slot 0 is the dummy row that padding tokens and dummy groups write (docs/spec.md, model and pools).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DeepseekV4Config

from dsv4_npu_ops import KVLayout
from dsv4_npu_ops.layout import POOLS

_LAYER_TYPES = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


@dataclass(frozen=True)
class CompressorPools:
    """What one compressor writes: its entries and its unfinished input.

    Attributes:
        entries: ``[c4 or c128 slots, head_dim]`` compressed and rotated.
        state: ``[c4_state or c128_state slots, 2, F]`` what kv_proj ([:, 0]) and gate_proj ([:, 1]) gave for a raw
            token, before the position bias; F is 2 * head_dim at ratio 4, head_dim at 128.
    """

    entries: Tensor
    state: Tensor


@dataclass(frozen=True)
class LayerPools:
    """One layer's rows of the pools, in the model's dtype.

    Attributes:
        ratio: compress ratio, 0, 4 or 128.
        swa: ``[swa slots, head_dim]`` rotated sliding-window KV.
        compressor: the attention's compressor; None at ratio 0.
        indexer: the indexer's compressor with index_head_dim features; ratio 4 only.
    """

    ratio: int
    swa: Tensor
    compressor: CompressorPools | None = None
    indexer: CompressorPools | None = None


def layer_ratios(config: DeepseekV4Config) -> list[int]:
    """Compress ratio of every layer of the target.

    Raises:
        ValueError: a layer type compresses at another ratio than the pools are made for.
    """
    for name, ratio in _LAYER_TYPES.items():
        configured = (config.compress_rates or {}).get(name, ratio)
        if ratio and configured != ratio:
            raise ValueError(f"config.compress_rates[{name!r}]: expected {ratio}, got {configured}")
    return [_LAYER_TYPES[name] for name in config.layer_types or []]


class KVPools:
    """All layers' pool tensors: ``layers[i]`` for the target's layer i, ``nextn`` for the MTP layer.

    Args:
        config: the target's config.
        layout: pool sizes; page 0 is added to the usable pages.
        dtype: dtype of the model's activations.
        device: where they live; default: the layout's device.
        fill: initial content of every row. A test fills with NaN to show that no unwritten row is ever used.

    Raises:
        ValueError: the layout lacks a pool that a layer needs.
    """

    def __init__(
        self,
        config: DeepseekV4Config,
        layout: KVLayout,
        dtype: torch.dtype,
        *,
        device: torch.device | str | None = None,
        fill: float = 0.0,
    ) -> None:
        self._layout, self._dtype, self._fill = layout, dtype, fill
        self._device = layout.device if device is None else device
        self._tensors: dict[str, list[Tensor]] = {pool: [] for pool in POOLS}
        head, index = config.head_dim, config.index_head_dim
        self.layers = [self._layer(ratio, head, index) for ratio in layer_ratios(config)]
        self.nextn = self._layer(0, head, index)

    def page_size_of(self, pool: str) -> int:
        """Slots of a page of the pool's tensors."""
        return self._layout.page_size_of(pool)

    def _layer(self, ratio: int, head_dim: int, index_dim: int) -> LayerPools:
        swa = self._rows("swa", head_dim)
        if ratio == 0:
            return LayerPools(0, swa)
        if ratio == 128:
            return LayerPools(128, swa, self._compressor("c128", head_dim, head_dim))
        return LayerPools(
            4, swa, self._compressor("c4", head_dim, 2 * head_dim), self._compressor("c4", index_dim, 2 * index_dim)
        )

    def _compressor(self, pool: str, head_dim: int, features: int) -> CompressorPools:
        return CompressorPools(self._rows(pool, head_dim), self._rows(f"{pool}_state", 2, features))

    def _rows(self, pool: str, *width: int) -> Tensor:
        if not self._layout.has_pool(pool):
            raise ValueError(f"layout.num_pages: expected an entry for {pool}, which this model needs, got none")
        shape = (self._layout.num_slots(pool), *width)
        self._tensors[pool].append(torch.full(shape, self._fill, dtype=self._dtype, device=self._device))
        return self._tensors[pool][-1]

    def copy_pages(self, copies: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        """Copies whole pages in every tensor of a pool: what ``KVAllocator.share_prefix`` leaves to the engine.

        Args:
            copies: by pool, source and destination pages, integers ``[n]`` each on any device. A pool without tensors
                of the model (``full``) has nothing to copy.

        Raises:
            ValueError: an unknown pool; nothing was copied.

        Source: docs/spec.md, shared prefixes.
        """
        for pool in copies:
            if pool not in self._tensors:
                raise ValueError(f"copies: expected pools of {', '.join(POOLS)}, got {pool!r}")
        for pool, pages in copies.items():
            if not self._tensors[pool]:
                continue
            sources, destinations = (ids.to(self._device).long() for ids in pages)
            for tensor in self._tensors[pool]:
                by_page = tensor.view(-1, self.page_size_of(pool), *tensor.shape[1:])
                by_page[destinations] = by_page[sources]

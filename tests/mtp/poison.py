"""A runner whose pools hold NaN wherever nothing may be read: unwritten, released, and beyond the committed length."""

from collections.abc import Callable
from typing import Any

import torch

from dsv4_npu_ops.layout import RAW_TOKENS_PER_SLOT, KVLayout
from dsv4_npu_ops.mtp.pools import LayerPools
from dsv4_npu_ops.mtp.runner import Runner


def pool_tensors(runner: Runner, pool: str) -> list[torch.Tensor]:
    """Every layer's tensor that is addressed by this pool's slots."""

    def of(layer: LayerPools) -> list[torch.Tensor]:
        compressors = [pools for pools in (layer.compressor, layer.indexer) if pools is not None]
        if pool == "swa":
            return [layer.swa]
        if pool == f"c{layer.ratio}":
            return [pools.entries for pools in compressors]
        if pool == f"c{layer.ratio}_state":
            return [pools.state for pools in compressors]
        return []

    layers = [*runner.pools.layers, runner.pools.nextn]
    return [tensor for layer in layers for tensor in of(layer)]


def slots_of_pages(runner: Runner, pool: str, pages: torch.Tensor) -> torch.Tensor:
    """Slots of pages, one after another; 0 for those of page 0."""
    size = runner.tables.page_size_of(pool)
    return torch.where(pages[:, None] > 0, pages[:, None] * size + torch.arange(size), 0).flatten()


def poisoned_runner(target: Any, nextn: Any, layout: KVLayout, **options: Any) -> Runner:
    """A runner over pools full of NaN, whose released slots become NaN again, and so do those of rejected tokens."""
    runner = Runner(target, nextn, layout, fill=float("nan"), **options)

    def poison(pool: str, slots: torch.Tensor) -> None:
        for tensor in pool_tensors(runner, pool):
            tensor[slots.long()] = float("nan")

    def watched(release: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            before = {pool: runner.tables.table(pool).clone() for pool in runner.tables.pools}
            result = release(*args)
            for pool in runner.tables.pools:
                table = runner.tables.table(pool)
                released = before[pool][(before[pool] > 0) & (table == 0)]
                # A page that was shared stays with its other owners.
                poison(pool, slots_of_pages(runner, pool, released[~torch.isin(released, table)]))
            return result

        return call

    reserve_extend = runner.allocator.reserve_extend

    def reserve_and_poison(rows: list[int], prefix_lens: list[int], seq_lens: list[int]) -> Any:
        # From the prefix on nothing is committed: what was rejected lies there, and what is about to be written.
        result = reserve_extend(rows, prefix_lens, seq_lens)
        for pool in runner.tables.pools:
            for row, length in zip(rows, prefix_lens, strict=True):
                slots = slots_of_pages(runner, pool, runner.tables.table(pool)[row])
                slots = slots[length // RAW_TOKENS_PER_SLOT[pool] :]
                poison(pool, slots[slots > 0])
        return result

    runner.allocator.reserve_extend = reserve_and_poison
    runner.allocator.evict = watched(runner.allocator.evict)
    runner.allocator.free = watched(runner.allocator.free)
    return runner

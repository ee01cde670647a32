"""Mooncake: which block of the prefill's window goes into which block of the receiver's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv4_npu_ops.engines.hooks import Hook, Unexpected

_WORKER = "vllm_ascend.distributed.kv_transfer.kv_p2p.mooncake_connector.MooncakeConnectorWorker"


def get_kernel_block_ids(
    original: Callable[..., Any], self: Any, layer_indices: Any, meta: Any, group_idx: int, group_spec: dict[str, Any]
) -> tuple[list[int], list[int]]:
    """``_get_kernel_block_ids``: the blocks of a window, here and at the prefill, paired from their ends.

    Both lists end at the block of the last token that was computed, but they begin where either scheduler has freed
    what lies before its window, or where the receiver's cached prefix ends. Entries of compressed groups are the
    engine's: its lists of those begin at the same token, and may end at different ones.
    """
    model_type = self.vllm_config.model_config.hf_config.model_type
    if model_type != "deepseek_v4" or not _has_window(group_spec["kv_cache_spec"]):
        return original(self, layer_indices, meta, group_idx, group_spec)  # type: ignore[no-any-return]
    if meta.remote_block_size and meta.remote_block_size != self.block_size:  # of some prefills it is not known
        raise Unexpected(f"the prefill has blocks of {meta.remote_block_size} slots, here they have {self.block_size}")
    group = self._get_kv_cache_group_id(group_idx, group_spec)
    here, there = meta.local_block_ids[group], meta.remote_block_ids[group]
    count = min(len(here), len(there))
    scale = self.block_size_scale[layer_indices[0]][0]
    return tuple(  # type: ignore[return-value]
        self._expand_block_ids(blocks[len(blocks) - count :], scale) for blocks in (here, there)
    )


def _has_window(spec: dict[str, Any]) -> bool:
    """Whether a group's layers see a window; a group of several kinds of layers lists them by name."""
    return bool(spec.get("sliding_window")) or any(
        isinstance(of_layer, dict) and of_layer.get("sliding_window") for of_layer in spec.values()
    )


HOOKS = (Hook(f"{_WORKER}._get_kernel_block_ids", get_kernel_block_ids, "0.23.0", "0.23.0"),)

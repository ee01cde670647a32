"""Groups, slots and rotations of the compressors: once a step for all layers of a ratio."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook, Unexpected
from dsv4_npu_ops.engines.shadow import compare
from dsv4_npu_ops.graph_capture import is_capturing
from dsv4_npu_ops.layout.compressor_metadata import CompressorMetadata
from dsv4_npu_ops.ops import compressor_metadata

RESULTS = "_dsv4_npu_ops_results"
"""On the metadata of a part of a step: results by their inputs, common to the builders of the step."""

_IMPL = "vllm_ascend.attention.dsa_v1.AscendDSAImpl"
_FIELDS = ("cos", "sin", "slot_mapping")


def compute_compressor_metadata(original: Callable[..., Any], self: Any, metadata: Any) -> tuple[Tensor, ...]:
    """``_compute_compressor_metadata``: the step's result where a layer of the same inputs has asked before.

    What a graph captures is a launch of its own, the first of its forward, and so is the first on another stream.
    """
    results = metadata.__dict__.setdefault(RESULTS, {})
    inputs = (
        self.compress_ratio,
        metadata.num_compressed_tokens,
        metadata.num_reqs_actual,
        metadata.block_size,
        *(_place(tensor) for tensor in (metadata.query_start_loc, metadata.start_pos, metadata.block_table)),
        _stream(metadata.start_pos.device),
        is_capturing(),
    )
    found = results.get(inputs)
    if found is None:
        found = results[inputs] = _launch(self, metadata)
    return found  # type: ignore[no-any-return]


def shadow_compute_compressor_metadata(original: Callable[..., Any], self: Any, metadata: Any) -> tuple[Tensor, ...]:
    """The engine's result is used; ours is made beside it and compared."""
    theirs: tuple[Tensor, ...] = original(self, metadata)

    def again() -> tuple[Tensor, ...]:
        return _launch(self, metadata)

    given = [ours.view_as(their) for ours, their in zip(again(), theirs, strict=True)]
    compare(
        "vLLM-Ascend",
        "_compute_compressor_metadata",
        dict(zip(_FIELDS, theirs, strict=True)),
        dict(zip(_FIELDS, given, strict=True)),
        again,
    )
    return theirs


def _launch(self: Any, metadata: Any) -> tuple[Tensor, ...]:
    cos, sin = metadata.full_compress_cos, metadata.full_compress_sin
    if cos is None or sin is None or metadata.start_pos is None or metadata.num_reqs_actual is None:
        raise Unexpected("metadata of a part without groups")
    width = cos.shape[-1]
    pairs = sys.modules[type(self).__module__].DeviceOperator.get_dsa_compressor_slot_mapping_format()
    out = CompressorMetadata.empty(
        metadata.num_compressed_tokens,
        width,
        wanted=_FIELDS,
        slot_mapping_format=pairs,
        rope_dtype=cos.dtype,
        device=metadata.start_pos.device,
    )
    compressor_metadata(
        cos.view(-1, width),
        sin.view(-1, width),
        metadata.query_start_loc,
        metadata.start_pos,
        metadata.block_table,
        metadata.block_size,
        pairs,
        self.compress_ratio,
        metadata.num_compressed_tokens,
        metadata.num_reqs_actual,
        out=out,
    )
    assert out.cos is not None and out.sin is not None and out.slot_mapping is not None
    return out.cos.view(-1, width), out.sin.view(-1, width), out.slot_mapping


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def _stream(device: torch.device) -> Any:
    return None if device.type == "cpu" else getattr(torch, device.type).current_stream(device)


HOOKS = (
    Hook(
        f"{_IMPL}._compute_compressor_metadata",
        compute_compressor_metadata,
        "0.23.0",
        "0.23.0",
        shadow_compute_compressor_metadata,
    ),
)

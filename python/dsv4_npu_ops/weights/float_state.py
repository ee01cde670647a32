"""From a checkpoint's MTP tensors to the state of the float module ``NextnLayer``, and back.

Source: docs/spec.md, weights. DeepSeek-V4 stores FP8 (e4m3, one power-of-two scale a block of 128 x 128) and, for
routed experts, FP4 (e2m1, two values a byte, one scale for 32 of a row); ModelSlim stores int8 with one scale an output
row.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from dsv4_npu_ops.weights.names import QUANTISATION_PARAMETERS

_FP8_BLOCK = 128
_FP4_GROUP = 32
_FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_EXPERTS = "decoder.mlp.experts"
_FUSED = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}


def float_state_dict(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of ``NextnLayer`` from ``MtpWeights.tensors``: quantised matrices in float32, routed experts stacked.

    Args:
        tensors: by parameter; a quantised weight has its ``weight_scale`` (and ``weight_offset``) beside it.

    Returns:
        by parameter; ``decoder.mlp.experts.gate_up_proj`` ``[experts, 2 * intermediate, hidden]`` and ``down_proj``
        ``[experts, hidden, intermediate]`` take the place of the single experts. Other tensors are not copied.

    Raises:
        ValueError: a quantised weight whose format is none of the above, or that has no scale; a gap in the numbers of
            the experts, or one without one of its three matrices.
    """
    state = {}
    for name, tensor in tensors.items():
        base, _, parameter = name.rpartition(".")
        if parameter in QUANTISATION_PARAMETERS:
            if parameter == "scale_bias":
                raise ValueError(f"{name}: expected int8 rows, got packed int4 (W4A8), which only engines compute with")
            continue
        if parameter == "weight":
            scale, offset = tensors.get(f"{base}.weight_scale"), tensors.get(f"{base}.weight_offset")
            tensor = _dequantised(name, tensor, scale, offset)
        state[name] = tensor
    return _stacked(state)


def _dequantised(name: str, weight: Tensor, scale: Tensor | None, offset: Tensor | None) -> Tensor:
    if scale is None:
        if not weight.is_floating_point() or weight.dtype.itemsize == 1:
            raise ValueError(f"{name}: expected a scale beside a weight of {weight.dtype}, got none")
        return weight
    rows, columns = weight.shape[0], weight.shape[-1]
    if weight.dtype == torch.float8_e4m3fn:
        expected = [-(-rows // _FP8_BLOCK), -(-columns // _FP8_BLOCK)]
        if list(scale.shape) != expected:
            raise ValueError(f"{name}: expected a scale of shape {expected} for FP8 blocks, got {list(scale.shape)}")
        blocks = scale.float().repeat_interleave(_FP8_BLOCK, 0).repeat_interleave(_FP8_BLOCK, 1)
        return weight.float() * blocks[:rows, :columns]
    if weight.dtype == torch.int8 and scale.dtype == torch.float8_e8m0fnu:
        values = _unpacked_fp4(weight)
        if list(scale.shape) != [rows, values.shape[1] // _FP4_GROUP]:
            raise ValueError(
                f"{name}: expected a scale of shape {[rows, values.shape[1] // _FP4_GROUP]} for FP4 groups, "
                f"got {list(scale.shape)}"
            )
        return values * scale.float().repeat_interleave(_FP4_GROUP, 1)
    if weight.dtype == torch.int8 and scale.numel() == rows:
        centred = weight.float() if offset is None else weight.float() - offset.float().view(rows, 1)
        return centred * scale.float().view(rows, 1)
    raise ValueError(
        f"{name}: weight of {weight.dtype} {list(weight.shape)} with a scale of {scale.dtype} {list(scale.shape)}, "
        "expected FP8 blocks, packed FP4 groups or int8 rows"
    )


def _unpacked_fp4(packed: Tensor) -> Tensor:
    """``[rows, columns / 2]`` bytes to float32 ``[rows, columns]``; the low half of a byte comes first."""
    table = torch.tensor([*_FP4_VALUES, *(-value for value in _FP4_VALUES)])
    codes = packed.view(torch.uint8).int()
    return table[torch.stack([codes & 15, codes >> 4], dim=-1).flatten(1)]


def _stacked(state: dict[str, Tensor]) -> dict[str, Tensor]:
    single = re.compile(re.escape(_EXPERTS) + r"\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight")
    experts: dict[int, dict[str, Tensor]] = {}
    others = {}
    for name, tensor in state.items():
        match = single.fullmatch(name)
        if match is None:
            others[name] = tensor
        else:
            experts.setdefault(int(match[1]), {})[match[2]] = tensor
    if not experts:
        return others
    for number in range(max(experts) + 1):
        lacking = {"gate_proj", "up_proj", "down_proj"} - experts.get(number, {}).keys()
        if lacking:
            raise ValueError(f"{_EXPERTS}.{number}: expected all of its matrices, got none for {sorted(lacking)}")
    for fused, parts in _FUSED.items():
        others[f"{_EXPERTS}.{fused}"] = torch.stack(
            [torch.cat([experts[number][part] for part in parts]) for number in sorted(experts)]
        )
    return others


def split_experts(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of stacking: ``NextnLayer``'s state with one weight for each matrix of each routed expert."""
    split = {}
    for name, tensor in state.items():
        parts = _FUSED.get(name.removeprefix(f"{_EXPERTS}."))
        if parts is None or not name.startswith(_EXPERTS):
            split[name] = tensor
            continue
        for number, expert in enumerate(tensor):
            for part, matrix in zip(parts, expert.chunk(len(parts)), strict=True):
                split[f"{_EXPERTS}.{number}.{part}.weight"] = matrix
    return split

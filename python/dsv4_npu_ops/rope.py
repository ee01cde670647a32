"""RoPE frequencies of DeepSeek-V4's layers (docs/spec.md, RoPE)."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.rope_cache import RopeCache

__all__ = ["RopeCache", "build_freqs_cis"]

_RATIOS = (0, 4, 128)
# float32 counts exactly up to here; past it two positions would share a row.
_MAX_POSITIONS = 1 << 24


def build_freqs_cis(config: Any, ratio: int, max_pos: int, *, device: torch.device | str = "cpu") -> Tensor:
    """Unit complex numbers that rotate position p, for every position below ``max_pos``.

    A layer of ratio 0 rotates with base ``rope_theta`` and no scaling; all branches of a layer of ratio 4 or 128 with
    base ``compress_rope_theta`` and, where the config has it, YaRN. The amplitude is 1: YaRN's attention factor
    (mscale) is never applied, whatever the config says of it.

    The angle is the float32 product of the float32 position and the float32 inverse frequency, as in transformers and
    in the model's published inference code, so cos and sin equal transformers' to the last bit. Against exact angles
    that is off by up to 0.002 rad below position 32768 and 0.06 rad below 2**20, nearly all of it the rounding of the
    angle. Better angles would be other angles than the model was trained with. The work is done on the host, because
    cos and sin of other devices round differently.

    Args:
        config: transformers' ``DeepseekV4Config``, or any object or mapping with the same fields. RoPE parameters are
            read from ``rope_parameters`` (or ``rope_scaling``), nested as ``{"main": .., "compress": ..}`` or flat, and
            else from fields of the config itself: ``rope_theta``, ``compress_rope_theta``, ``qk_rope_head_dim`` (or
            ``head_dim`` and ``partial_rotary_factor``), and for YaRN ``factor``,
            ``original_max_position_embeddings``, ``beta_fast`` (32) and ``beta_slow`` (1).
        ratio: the layer's compress ratio, 0, 4 or 128.
        max_pos: positions in the result, 1 to 2**24.
        device: where the result goes; it is computed on the host and copied.

    Returns:
        ``[max_pos, D / 2]`` complex64, D the rotated features: element ``[p, j]`` is ``exp(i * p * frequency_j)``.

    Raises:
        ValueError: an unknown ratio or RoPE type, ``max_pos`` out of range, a missing or unusable config field.

    Source: docs/spec.md, RoPE. YaRN: arXiv 2309.00071.
    """
    if ratio not in _RATIOS:
        raise ValueError(f"build_freqs_cis: ratio is {ratio}, expected one of {_RATIOS}")
    if not 1 <= max_pos <= _MAX_POSITIONS:
        raise ValueError(f"build_freqs_cis: max_pos is {max_pos}, expected 1 to {_MAX_POSITIONS}")
    angles = torch.arange(max_pos, device="cpu").float()[:, None] * _inverse_frequencies(config, compressed=ratio != 0)
    # Not torch.polar: its cos and sin differ from torch.cos and torch.sin in the last bit.
    return torch.complex(angles.cos(), angles.sin()).to(device)


def _inverse_frequencies(config: Any, *, compressed: bool) -> Tensor:
    """``[D / 2]`` float32 radians per position, in the order of operations that transformers rounds in."""
    section, nested = _rope_section(config, compressed)
    rope_dim = _rope_dim(config, section)
    base_name = "compress_rope_theta" if compressed else "rope_theta"
    base = section.get("rope_theta") if nested else None
    if base is None:
        base = _field(config, base_name, section.get(base_name))
    if base is None or base <= 1:
        raise ValueError(f"build_freqs_cis: {base_name} is {base}, expected a number above 1")

    wavelengths = float(base) ** (torch.arange(0, rope_dim, 2, device="cpu").float() / rope_dim)
    inverse = 1.0 / wavelengths
    if not compressed or not _has_yarn(section):
        return inverse

    original = section.get("original_max_position_embeddings")
    factor = section.get("factor")
    if factor is None and original:
        factor = _field(config, "max_position_embeddings", 0) / original
    factor = _positive("factor", factor)
    original = _positive("original_max_position_embeddings", original)
    fast, slow = section.get("beta_fast") or 32, section.get("beta_slow") or 1
    unscaled = 1 - _yarn_ramp(rope_dim, base, original, fast, slow)
    return (1.0 / (factor * wavelengths)) * (1 - unscaled) + inverse * unscaled


def _positive(name: str, value: float | None) -> float:
    if value is None or value <= 0:
        raise ValueError(f"build_freqs_cis: {name} of YaRN is {value}, expected a number above 0")
    return value


def _yarn_ramp(rope_dim: int, base: float, original_max_pos: float, beta_fast: float, beta_slow: float) -> Tensor:
    """``[D / 2]``: 0 for pairs that keep their frequency, 1 for pairs that are fully interpolated."""

    def pair_turning(turns: float) -> float:
        return rope_dim * math.log(original_max_pos / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(pair_turning(beta_fast)), 0)
    high = min(math.ceil(pair_turning(beta_slow)), rope_dim - 1)
    width = 0.001 if low == high else high - low
    return ((torch.arange(rope_dim // 2, device="cpu").float() - low) / width).clamp(0, 1)


def _field(config: Any, name: str, default: Any = None) -> Any:
    value = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    return default if value is None else value


def _rope_section(config: Any, compressed: bool) -> tuple[Mapping[str, Any], bool]:
    """The RoPE parameters of one kind of layer, and whether they are that kind's own."""
    parameters = _field(config, "rope_parameters", _field(config, "rope_scaling"))
    if parameters is None:
        names = ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow")
        return {name: _field(config, name) for name in names}, False
    section = parameters.get("compress" if compressed else "main")
    return (section, True) if isinstance(section, Mapping) else (parameters, False)


def _rope_dim(config: Any, section: Mapping[str, Any]) -> int:
    rope_dim, head_dim = _field(config, "qk_rope_head_dim"), _field(config, "head_dim")
    fraction = section.get("partial_rotary_factor")
    if fraction is None and rope_dim is None:
        fraction = _field(config, "partial_rotary_factor")
    if fraction is not None and head_dim is not None:
        rope_dim = int(head_dim * fraction)
    if rope_dim is None or rope_dim <= 0 or rope_dim % 2:
        raise ValueError(f"build_freqs_cis: qk_rope_head_dim is {rope_dim}, expected a positive even number")
    return rope_dim


def _has_yarn(section: Mapping[str, Any]) -> bool:
    kind = section.get("rope_type", section.get("type"))
    if kind not in (None, "default", "yarn"):
        raise ValueError(f"build_freqs_cis: rope_type is {kind!r}, expected 'default' or 'yarn'")
    return kind == "yarn" or (kind is None and section.get("factor") is not None)

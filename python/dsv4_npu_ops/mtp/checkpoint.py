"""Reading and writing a DeepSeek-V4 checkpoint folder with an MTP layer beside the target."""

import os
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

from dsv4_npu_ops.mtp.nextn import NextnLayer

MTP_FILE = "mtp.safetensors"
_TARGET_FILE = "model.safetensors"
_CONFIG_FILE = "config.json"
_MTP_PREFIX = "mtp.0."


def load_checkpoint(
    path: str | os.PathLike[str], dtype: torch.dtype = torch.float32
) -> tuple[DeepseekV4ForCausalLM, NextnLayer]:
    """Target and MTP layer of a checkpoint folder, on the CPU, in eval mode, without gradients.

    Args:
        path: folder with config.json, model.safetensors and mtp.safetensors.
        dtype: dtype of both models' weights; float64 also widens what transformers would keep in float32.

    Raises:
        FileNotFoundError: the folder has no mtp.safetensors.
        RuntimeError: a weight of the MTP layer is missing or unknown.
    """
    folder = Path(path)
    if not (folder / MTP_FILE).is_file():
        raise FileNotFoundError(f"path: expected a folder with {MTP_FILE}, got {folder}")
    # "eager" experts loop over experts: the only implementation that also runs in float64.
    target = DeepseekV4ForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager"
    )
    nextn = NextnLayer(target.config, target.model.embed_tokens, target.lm_head)
    weights = load_file(folder / MTP_FILE)
    nextn.load_state_dict({name.removeprefix(_MTP_PREFIX): weight for name, weight in weights.items()})
    models: tuple[nn.Module, nn.Module] = (target, nextn)
    for model in models:
        model.to(dtype).eval().requires_grad_(False)
    return target, nextn


def _stored(model: nn.Module, prefix: str) -> dict[str, torch.Tensor]:
    """Weights as they are stored: matrices in bfloat16, vectors and integers as they are."""
    return {
        prefix + name: (weight.to(torch.bfloat16) if weight.is_floating_point() and weight.dim() > 1 else weight)
        .detach()
        .contiguous()
        for name, weight in model.state_dict().items()
    }


def save_checkpoint(path: str | os.PathLike[str], target: DeepseekV4ForCausalLM, nextn: NextnLayer) -> None:
    """Writes config.json, model.safetensors and mtp.safetensors; each file is replaced in one move.

    Matrices are rounded to bfloat16, which halves the files.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    config = DeepseekV4Config.from_dict({**target.config.to_dict(), "architectures": ["DeepseekV4ForCausalLM"]})
    config.dtype = torch.float32
    _replace(folder / _TARGET_FILE, lambda name: save_file(_stored(target, ""), name, metadata={"format": "pt"}))
    _replace(folder / MTP_FILE, lambda name: save_file(_stored(nextn, _MTP_PREFIX), name, metadata={"format": "pt"}))
    _replace(folder / _CONFIG_FILE, lambda name: config.to_json_file(name))


def _replace(file: Path, write: Callable[[Path], object]) -> None:
    partial = file.with_name(file.name + ".partial")
    write(partial)
    partial.chmod(0o644)
    os.replace(partial, file)

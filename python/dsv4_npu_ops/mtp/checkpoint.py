"""Reading and writing a DeepSeek-V4 checkpoint folder with an MTP layer beside the target."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

from dsv4_npu_ops.mtp.nextn import NextnLayer
from dsv4_npu_ops.weights import MtpNames, float_state_dict, read_mtp_weights, split_experts

MTP_FILE = "mtp.safetensors"
_TARGET_FILE = "model.safetensors"
_CONFIG_FILE = "config.json"


def load_checkpoint(
    path: str | os.PathLike[str], dtype: torch.dtype = torch.float32
) -> tuple[DeepseekV4ForCausalLM, NextnLayer]:
    """Target and MTP layer of a checkpoint folder, on the CPU, in eval mode, without gradients.

    Args:
        path: folder with config.json, the target's safetensors as transformers finds them, and the MTP layer's in
            the same files or others (``dsv4_npu_ops.weights.read_mtp_weights``).
        dtype: dtype of both models' weights; float64 also widens what transformers would keep in float32.

    Raises:
        FileNotFoundError: the folder lacks files.
        ValueError: it has no MTP layer, or weights of one that have no place.
        RuntimeError: a weight of the MTP layer is missing.
    """
    folder = Path(path)
    weights = read_mtp_weights(folder)
    if weights.unmatched:
        raise ValueError(f"{folder}: expected only weights that the MTP layer has, got {', '.join(weights.unmatched)}")
    # "eager" experts loop over experts: the only implementation that also runs in float64.
    target = DeepseekV4ForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager"
    )
    nextn = NextnLayer(target.config, target.model.embed_tokens, target.lm_head)
    nextn.load_state_dict(float_state_dict(weights.tensors))
    models: tuple[nn.Module, nn.Module] = (target, nextn)
    for model in models:
        model.to(dtype).eval().requires_grad_(False)
    return target, nextn


def _save(state: Mapping[str, torch.Tensor], file: Path) -> None:
    """Writes weights as they are stored: matrices in bfloat16, vectors and integers as they are."""
    stored = {
        name: (weight.to(torch.bfloat16) if weight.is_floating_point() and weight.dim() > 1 else weight)
        .detach()
        .contiguous()
        for name, weight in state.items()
    }
    save_file(stored, file, metadata={"format": "pt"})


def save_checkpoint(path: str | os.PathLike[str], target: DeepseekV4ForCausalLM, nextn: NextnLayer) -> None:
    """Writes config.json, model.safetensors and mtp.safetensors; each file is replaced in one move.

    The MTP layer gets the names that DeepSeek's checkpoints give it. Matrices are rounded to bfloat16, which halves the
    files.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    config = DeepseekV4Config.from_dict({**target.config.to_dict(), "architectures": ["DeepseekV4ForCausalLM"]})
    config.dtype = torch.float32
    names = MtpNames(config.num_hidden_layers)
    own = {names.checkpoint(name): weight for name, weight in split_experts(nextn.state_dict()).items()}
    _replace(folder / _TARGET_FILE, lambda name: _save(target.state_dict(), name))
    _replace(folder / MTP_FILE, lambda name: _save(own, name))
    _replace(folder / _CONFIG_FILE, lambda name: config.to_json_file(name))


def _replace(file: Path, write: Callable[[Path], object]) -> None:
    partial = file.with_name(file.name + ".partial")
    write(partial)
    partial.chmod(0o644)
    os.replace(partial, file)

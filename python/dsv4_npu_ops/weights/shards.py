"""Finding the MTP layer's tensors in a checkpoint folder of safetensors files."""

import json
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from dsv4_npu_ops.weights.names import MtpNames


@dataclass(frozen=True)
class MtpWeights:
    """What a checkpoint has of an MTP layer.

    Attributes:
        tensors: by parameter of ``NextnLayer``, routed experts one by one, values as stored (quantised ones with their
            ``weight_scale`` and the like beside them).
        shared: checkpoint names of copies of the target's embedding and head, which are not read.
        unmatched: checkpoint names of the layer that nothing in the table of names matches, which are not read.
    """

    tensors: dict[str, Tensor]
    shared: list[str]
    unmatched: list[str]


def read_mtp_weights(path: str | os.PathLike[str], num_hidden_layers: int | None = None, index: int = 0) -> MtpWeights:
    """Reads the tensors of one MTP layer, and no others, into host memory.

    Args:
        path: folder with one ``*.safetensors.index.json`` and its shards, or with ``*.safetensors`` files alone.
        num_hidden_layers: layers of the target; default from the folder's ``config.json``.
        index: which MTP layer.

    Raises:
        FileNotFoundError: the folder has no safetensors files, lacks a shard that its index names, or has no
            ``config.json`` to take ``num_hidden_layers`` from.
        ImportError: safetensors is not installed.
        ValueError: there are several indices; two names mean the same parameter; a shard lacks a tensor that the index
            places there; nothing in the folder belongs to the layer.

    Source: docs/spec.md, weights.
    """
    folder = Path(path)
    if num_hidden_layers is None:
        num_hidden_layers = int(json.loads((folder / "config.json").read_text())["num_hidden_layers"])
    names = MtpNames(num_hidden_layers, index)
    files = _files_of_names(folder)
    own = [name for name in files if names.belongs(name)]
    if not own:
        raise ValueError(f"path: expected a folder with weights of MTP layer {index}, got {folder}, which has none")
    unmatched = names.unmatched(own)
    shared = [name for name in own if names.is_shared(name)]
    wanted: defaultdict[Path, dict[str, str]] = defaultdict(dict)
    found: dict[str, str] = {}
    for name in own:
        parameter = names.module(name)
        if parameter is None or name in shared:
            continue
        if parameter in found:
            raise ValueError(f"{folder}: {found[parameter]!r} and {name!r} are both {parameter}, expected one of them")
        found[parameter] = name
        wanted[files[name]][name] = parameter
    tensors = {}
    for file, parameters in wanted.items():
        with _open(file) as shard:
            held = set(shard.keys())
            for name, parameter in parameters.items():
                if name not in held:
                    raise ValueError(f"{file}: expected tensor {name!r}, which the index places there")
                tensors[parameter] = shard.get_tensor(name)
    return MtpWeights(tensors, shared, unmatched)


def _files_of_names(folder: Path) -> dict[str, Path]:
    """The file of every tensor in the folder."""
    indices = sorted(folder.glob("*.safetensors.index.json"))
    if len(indices) > 1:
        raise ValueError(f"{folder}: expected one *.safetensors.index.json, got {[file.name for file in indices]}")
    if indices:
        weight_map: dict[str, str] = json.loads(indices[0].read_text())["weight_map"]
        for name in sorted(set(weight_map.values())):
            if not (folder / name).is_file():
                raise FileNotFoundError(f"{indices[0]}: expected shard {name} beside it")
        return {name: folder / file for name, file in weight_map.items()}
    files = {}
    for file in sorted(folder.glob("*.safetensors")):
        with _open(file) as shard:
            files.update(dict.fromkeys(shard.keys(), file))
    if not files:
        raise FileNotFoundError(f"path: expected a folder with safetensors files, got {folder}")
    return files


def _open(file: Path) -> Any:
    """A file of tensors. Names and values need no safetensors, so that only reading asks for it."""
    try:
        from safetensors import safe_open
    except ModuleNotFoundError:
        raise ImportError(
            "read_mtp_weights needs safetensors, which is not installed: pip install safetensors"
        ) from None
    return safe_open(file, "pt")

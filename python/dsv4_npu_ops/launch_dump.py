"""Saves calls of the ops with all their tensors, to repeat one elsewhere (docs/npu.md, when a kernel disagrees)."""

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from dsv4_npu_ops.graph_capture import is_capturing

FORMAT = 1
"""Of the files; a reader refuses others."""


@contextmanager
def dump_launches(folder: str | Path, ops: Iterable[str] | None = None) -> Iterator[None]:
    """Saves each call of an op inside the block as one file: arguments before, arguments and results after.

    A file holds the whole storage behind every tensor, so that strides and overlaps survive. Each call waits for the
    device twice; results are not changed by it.
    ``tests/ascend_backend/replay.py`` repeats a file on the CPU and in the device simulator and compares.

    It holds for the current thread.

    Args:
        folder: where the files go; made when missing. Names are ``<number>-<op>.pt``, numbered from 0.
        ops: names as in ``torch.ops.dsv4_npu_ops``, of the calls to save; default all.

    Raises:
        RuntimeError: an op is called inside a graph capture, whose tensors have no values yet.

    Source: docs/npu.md.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    with _Dump(Path(folder), None if ops is None else frozenset(ops)):
        yield


class _Dump(TorchDispatchMode):
    def __init__(self, folder: Path, ops: frozenset[str] | None) -> None:
        super().__init__()
        self.folder = folder
        self.ops = ops
        self.numbers = itertools.count()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        namespace, _, op = func.name().partition("::")
        op = op.partition(".")[0]
        if namespace != "dsv4_npu_ops" or (self.ops is not None and op not in self.ops):
            return func(*args, **kwargs)
        if is_capturing():
            raise RuntimeError(f"dump_launches: {op} was called inside a graph capture, expected outside")
        before = on_host((args, kwargs))
        results = func(*args, **kwargs)
        after = on_host((args, kwargs, results))
        record = {
            "format": FORMAT,
            "op": func.name(),
            "overload": func._overloadname,
            "before": before,
            "after": after,
        }
        torch.save(record, self.folder / f"{next(self.numbers):06d}-{op}.pt")
        return results


def on_host(tree: Any) -> Any:
    """Copies of all tensors in a tree, with the same strides over copies of the same storages."""
    storages: dict[int, Tensor] = {}

    def copy(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            # As bytes, because only a contiguous copy is a plain copy on every device.
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            storages[storage.data_ptr()] = whole.to("cpu", copy=True)
        bytes_ = storages[storage.data_ptr()].untyped_storage()
        host = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return host.set_(bytes_, tensor.storage_offset(), tensor.size(), tensor.stride())

    return tree_map_only(Tensor, copy, tree)

"""How the ops register fake kernels: what infers shapes under torch.compile, and what meta tensors run."""

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor

import dsv4_npu_ops._C  # noqa: F401  (loading it registers torch.ops.dsv4_npu_ops)
from dsv4_npu_ops.layout.buffers import DTYPES
from dsv4_npu_ops.layout.kv_layout import POOLS
from dsv4_npu_ops.layout.pool_address import KINDS_WITH_PAGES, kind_of

NAMESPACE = "dsv4_npu_ops"


def fake_kernel(
    name: str, *, fields: Sequence[str] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the decorated function as the fake kernel of an op, behind the check of devices that kernels make.

    torch runs it as soon as one argument is a meta tensor; without the check the op would then do nothing and say
    nothing, whatever the others are.

    Args:
        name: the op with its overload, such as ``rope_gather.out``.
        fields: names of what the bits of the op's ``fields`` stand for, where it has some.

    Source: docs/spec.md, errors.
    """
    op, _, overload = name.partition(".")
    schema = getattr(getattr(getattr(torch.ops, NAMESPACE), op), overload or "default")._schema
    names = [argument.name for argument in schema.arguments]

    def register(kernel: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(kernel)
        def checked(*arguments: Any, **named: Any) -> Any:
            check_one_device(op, dict(zip(names, arguments, strict=False)) | named, fields)
            return kernel(*arguments, **named)

        torch.library.register_fake(f"{NAMESPACE}::{name}", checked)
        return kernel

    return register


def writes_only(*arguments: Any, **named: Any) -> None:
    """The fake kernel of every op that returns nothing."""


@torch.library.register_fake(f"{NAMESPACE}::empty_tensors")
def empty_buffers(numbers: Sequence[int], device: torch.device) -> list[Tensor]:
    """What ``empty_tensors`` gives: a tensor for each of the buffers that the numbers tell."""
    tensors, rest = [], list(numbers)
    while rest:
        count, dtype, *rest = rest
        tensors.append(torch.empty(rest[: count - 1], dtype=DTYPES[dtype], device=device))
        rest = rest[count - 1 :]
    return tensors


def check_one_device(op: str, arguments: dict[str, Any], fields: Sequence[str] | None = None) -> None:
    """Checks that all tensors, also those of lists, are on one device; of meta and other tensors the meta ones are the
    wrong ones.

    Raises:
        ValueError: naming the first tensor that is elsewhere.
    """
    tensors = dict(_named_tensors(arguments, fields))
    like = next((name for name, tensor in tensors.items() if tensor.device.type != "meta"), None)
    if like is None:
        return
    expected = tensors[like].device
    for name, tensor in tensors.items():
        if tensor.device != expected:
            raise ValueError(f"{op}: {name} is on {tensor.device}, expected {expected} like {like}")


def _pools_with_tables(addressing: Sequence[int]) -> list[str]:
    """Pools whose tables stand in the list of an op."""
    return [pool for pool, number in zip(POOLS, addressing, strict=True) if kind_of(number) in KINDS_WITH_PAGES]


def _named_tensors(arguments: dict[str, Any], fields: Sequence[str] | None) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the device under the name that the kernels' checks give it."""
    for name, value in arguments.items():
        if name.startswith("host_"):
            continue
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, list | tuple):
            for i, tensor in enumerate(value):
                if not isinstance(tensor, Tensor):
                    continue
                if name == "out" and fields is not None:
                    given = [field for bit, field in enumerate(fields) if arguments["fields"] >> bit & 1]
                    yield f"out.{given[i]}", tensor
                elif name == "tables" and "addressing" in arguments:
                    yield f"table of pool {_pools_with_tables(arguments['addressing'])[i]}", tensor
                else:
                    yield f"{name}[{i}]", tensor

"""How the ops register fake kernels: what infers shapes under torch.compile, and what meta tensors run."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

import dsv4_npu_ops._C  # noqa: F401  (loading it registers torch.ops.dsv4_npu_ops)

NAMESPACE = "dsv4_npu_ops"


def fake_kernel(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the decorated function as the fake kernel of an op, behind the check of devices that kernels make.

    torch runs it as soon as one argument is a meta tensor; without the check the op would then do nothing and say
    nothing, whatever the others are.

    Args:
        name: the op with its overload, such as ``verify_step.out``.

    Source: docs/spec.md, errors.
    """
    op, _, overload = name.partition(".")
    schema = getattr(getattr(getattr(torch.ops, NAMESPACE), op), overload or "default")._schema
    names = [argument.name for argument in schema.arguments]

    def register(kernel: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(kernel)
        def checked(*arguments: Any, **named: Any) -> Any:
            check_one_device(op, dict(zip(names, arguments, strict=False)) | named)
            return kernel(*arguments, **named)

        torch.library.register_fake(f"{NAMESPACE}::{name}", checked)
        return kernel

    return register


def writes_only(*arguments: Any, **named: Any) -> None:
    """The fake kernel of every op that returns nothing."""


def check_one_device(op: str, arguments: dict[str, Any]) -> None:
    """Checks that all tensors are on one device; of meta and other tensors the meta ones are the wrong ones.

    Raises:
        ValueError: naming the first tensor that is elsewhere.
    """
    tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
    like = next((name for name, tensor in tensors.items() if tensor.device.type != "meta"), None)
    if like is None:
        return
    expected = tensors[like].device
    for name, tensor in tensors.items():
        if tensor.device != expected:
            raise ValueError(f"{op}: {name} is on {tensor.device}, expected {expected} like {like}")

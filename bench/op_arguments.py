"""The arguments of an op that other code calls."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class OpArguments(TorchDispatchMode):
    """Keeps the arguments of the last call of the op `name` within the block, as ``arguments``."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.arguments: tuple[Any, ...] = ()

    def __torch_dispatch__(
        self, func: torch._ops.OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.name() == self._name:
            self.arguments = args
        return func(*args, **(kwargs or {}))

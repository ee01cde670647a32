"""Tensors of a result by their names, for ops that take a list."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch


def attributes(paths: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """Reads attributes by their paths (dotted: of a part), in one call of C, which torch.compile does not know."""
    # Of a single path it would give no tuple.
    at_once = attrgetter(*paths) if len(paths) > 1 else None
    steps = [path.split(".") for path in paths]

    def read(result: Any) -> Sequence[Any]:
        if torch.compiler.is_dynamo_compiling() or at_once is None:
            return [_follow(result, names) for names in steps]
        return at_once(result)

    return read


def _follow(result: Any, names: Sequence[str]) -> Any:
    for name in names:
        result = getattr(result, name)
    return result

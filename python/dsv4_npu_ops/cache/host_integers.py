"""Request ids and lengths that a caller keeps on the host (docs/spec.md, errors)."""

from array import array
from collections.abc import Sequence
from operator import index
from typing import Any

import torch
from torch import Tensor

Integers = Sequence[int] | Tensor
"""Request ids or lengths: a list, or a 1-D integer tensor on the host."""

INTEGER_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def host_integer(op: str, name: str, value: int) -> int:
    """One integer of 64 bits.

    Raises:
        ValueError: not an integer, or none of 64 bits.
    """
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or not fits(number):
        raise ValueError(f"{op}: {name} is {value!r}, expected an integer of 64 bits")
    return number


def host_integers(op: str, name: str, values: Integers) -> list[int]:
    """A list of Python integers of 64 bits from a list or a 1-D integer tensor on the host.

    Raises:
        ValueError: another type, shape, dtype or device; an integer of more bits.
    """
    if isinstance(values, Tensor):
        if values.dim() != 1 or values.dtype not in INTEGER_DTYPES or values.device.type != "cpu":
            raise ValueError(
                f"{op}: {name} is {values.dtype} {list(values.shape)} on {values.device}, "
                "expected a list or a 1-D integer tensor on the host"
            )
        return values.tolist()
    given: Any = values
    try:
        given = values if type(values) is list else list(values)
        return array("q", given).tolist()  # one pass in C, which converts and checks
    except TypeError:
        raise ValueError(f"{op}: {name} is {values!r}, expected a list or a 1-D tensor of integers") from None
    except OverflowError:
        row = next(i for i, number in enumerate(given) if not fits(index(number)))
        raise ValueError(f"{op}: {name}[{row}] is {given[row]}, expected an integer of 64 bits") from None


def fits(number: int) -> bool:
    """Whether 64 bits with a sign hold it."""
    return -(2**63) <= number < 2**63

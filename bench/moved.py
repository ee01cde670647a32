"""What a launch must move through global memory at least, for the cases of simulated cost."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

CONTEXT, WIDTH, ROPE_DIM = 8192, 4, 64
"""Raw tokens of a request, tokens of a verify, elements of a RoPE row."""


@dataclass(frozen=True)
class Moved:
    """What a launch did and had to do.

    ``outputs`` are compared between kernels. ``read_bytes`` and ``written_bytes`` count every input and output element
    once; ``row_bytes`` are the inputs with a value a row, which each block reads for itself and which ``read_bytes``
    leaves out. ``elements`` are the output elements.
    """

    outputs: Sequence[Tensor]
    read_bytes: int
    written_bytes: int
    row_bytes: int
    elements: int


@dataclass(frozen=True)
class CostCase:
    """A launch that is ready to run; ``rows`` is B, or 0 for an op whose work does not come by request."""

    op: str
    shape: str
    rows: int
    run: Callable[[], Moved]


def nbytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def num_elements(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def tensors_of(group: object) -> list[Tensor]:
    return [getattr(group, field.name) for field in dataclasses.fields(group)]


def completed_groups(starts: Tensor, ends: Tensor) -> tuple[int, int]:
    """Completed groups of ratio 4 and 128."""
    return int((ends // 4 - starts // 4).sum()), int((ends // 128 - starts // 128).sum())


def moved_entries(outputs: list[Tensor], read_entries: int, rows: Sequence[Tensor]) -> Moved:
    return Moved(outputs, 4 * read_entries, nbytes(outputs), nbytes(rows), num_elements(outputs))

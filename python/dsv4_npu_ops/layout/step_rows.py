"""The rows of a step: where each starts and how many tokens it brings (docs/spec.md, a step)."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index

from torch import Tensor

PREFILL, FINAL, FINAL_RAGGED, FINAL_OFFSETS, COMMITTED, COMMITTED_RAGGED = range(6)
"""Forms as the ops number them (csrc/common/step_rows.h)."""


@dataclass(slots=True, eq=False)
class StepRows:
    """Rows of a step in one of the forms; made by ``prefill``, ``final``, ``mixed`` or ``verify``.

    All tensors are int32 or int64, contiguous, on the tables' device. A row of length 0 is padding in every form, as is
    one without tokens; in a final form a row whose start is 0 is a first chunk.

    Attributes:
        seq_lens: ``[B]`` lengths, with the step's tokens (final) or without them (committed).
        form: the number by which the ops know the form.
        operand: prefix lengths or widths ``[B]``, or offsets ``[B + 1]``; None where every row has ``width`` tokens.
        width: tokens of every row, padding rows included.

    Source: docs/spec.md, a step.
    """

    seq_lens: Tensor
    form: int
    operand: Tensor | None = None
    width: int = 0

    @classmethod
    def prefill(cls, prefix_lens: Tensor, seq_lens: Tensor) -> StepRows:
        """Chunks: row ``i`` brings the tokens ``[prefix_lens[i], seq_lens[i])``.

        Raises:
            ValueError: an argument that is no tensor of one dimension.
        """
        check_rows("StepRows.prefill", prefix_lens=prefix_lens, seq_lens=seq_lens)
        return cls(seq_lens, PREFILL, prefix_lens)

    @classmethod
    def final(cls, seq_lens: Tensor, num_new_tokens: int | Tensor = 1) -> StepRows:
        """Row ``i`` brings the last ``num_new_tokens`` (a number, or one a row) of ``seq_lens[i]`` tokens; 1 is a
        decode.

        Raises:
            ValueError: as ``prefill``.
        """
        check_rows("StepRows.final", seq_lens=seq_lens)
        return cls(seq_lens, *_widths("StepRows.final", "num_new_tokens", num_new_tokens, FINAL, FINAL_RAGGED))

    @classmethod
    def mixed(cls, cu_seqlens: Tensor, seq_lens: Tensor) -> StepRows:
        """Prefill chunks, decodes and verifies in one batch: row ``i`` brings the last ``cu_seqlens[i + 1] -
        cu_seqlens[i]`` of ``seq_lens[i]`` tokens; the offsets ``[B + 1]`` start at 0.

        Raises:
            ValueError: as ``prefill``.
        """
        check_rows("StepRows.mixed", cu_seqlens=cu_seqlens, seq_lens=seq_lens)
        return cls(seq_lens, FINAL_OFFSETS, cu_seqlens)

    @classmethod
    def verify(cls, seq_lens: Tensor, num_draft_tokens: int | Tensor) -> StepRows:
        """Row ``i`` brings ``num_draft_tokens`` (a number, or one a row) at positions ``seq_lens[i] ..``; ``seq_lens``
        are committed lengths.

        Raises:
            ValueError: as ``prefill``.
        """
        check_rows("StepRows.verify", seq_lens=seq_lens)
        return cls(
            seq_lens, *_widths("StepRows.verify", "num_draft_tokens", num_draft_tokens, COMMITTED, COMMITTED_RAGGED)
        )


def check_rows(op: str, **rows: Tensor) -> None:
    """Checks that every argument is a tensor of one dimension, which sizes are read from; the op checks the rest.

    Raises:
        ValueError: naming the argument.
    """
    for name, values in rows.items():
        if not isinstance(values, Tensor):
            raise ValueError(f"{op}: {name} is {values!r}, expected a tensor")
        if values.dim() != 1:
            raise ValueError(f"{op}: {name} has shape {list(values.shape)}, expected 1 dimension")


def _widths(maker: str, name: str, widths: int | Tensor, uniform: int, ragged: int) -> tuple[int, Tensor | None, int]:
    """Form, operand and width."""
    if isinstance(widths, Tensor):
        check_rows(maker, **{name: widths})
        return ragged, widths, 0
    try:
        return uniform, None, index(widths)
    except TypeError:
        raise ValueError(f"{maker}: {name} is {widths!r}, expected an integer or a tensor") from None

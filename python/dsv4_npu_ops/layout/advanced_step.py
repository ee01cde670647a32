"""What follows from a verify's accepted lengths (docs/spec.md, advance step)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4_npu_ops.layout.buffers import INT32, INT64, Buffer, empty_tensors, number_of
from dsv4_npu_ops.layout.kv_layout import KVLayout
from dsv4_npu_ops.layout.tables import RequestTables


@dataclass(slots=True)
class AdvancedStep:
    """Lengths, tokens and the first draft step of every row of a batch of B rows, on the tables' device.

    Each is optional in the ``out=`` form: what is None is not computed.

    Attributes:
        seq_lens: ``[B]`` like the old ones: committed length after the verify, L + a; 0 for padding.
        extend_lens: ``[B]`` int32 widths of the draft extend, a; 0 for padding.
        token_ids: ``[B]`` like the verify's: the token sampled last, which is not cached yet; without one the backup
            token, or 0; 0 for padding.
        positions: ``[B]`` int64 of that token, L + a; 0 for padding and where the longest context is reached.
        out_full_loc, out_swa_loc: ``[B]`` int32 slots of those positions, or the dummy: where there is no slot yet, no
            position, and for padding. A pool that does not exist has 0 entries.
        sampled_index: ``[B]`` int64 index of the row's last accepted token among the verify's; 0 for padding.
        hidden_states: ``[B, ...]`` the hidden states of those tokens, zeros for padding; None if none were given.
        valid_counts: ``[B]`` int32 samples that a row has, or its accepted length; 0 for padding. None: not asked for.
        rejected_lens: ``[B]`` int32 inputs that were not accepted; 0 for padding. None likewise.

    A row that accepted nothing keeps its length and is padding otherwise, but for its token and its counts.

    Source: docs/spec.md, advance step.
    """

    seq_lens: Tensor | None = None
    extend_lens: Tensor | None = None
    token_ids: Tensor | None = None
    positions: Tensor | None = None
    out_full_loc: Tensor | None = None
    out_swa_loc: Tensor | None = None
    sampled_index: Tensor | None = None
    hidden_states: Tensor | None = None
    valid_counts: Tensor | None = None
    rejected_lens: Tensor | None = None

    def lengths_and_tokens(self) -> tuple[Tensor, Tensor]:
        """``seq_lens`` and ``token_ids``: what the next step starts from.

        Raises:
            ValueError: one of them was not asked for.
        """
        if self.seq_lens is None or self.token_ids is None:
            name = "seq_lens" if self.seq_lens is None else "token_ids"
            raise ValueError(f"AdvancedStep.lengths_and_tokens: {name} is None, expected a step that asked for it")
        return self.seq_lens, self.token_ids

    @classmethod
    def empty(
        cls,
        pools: KVLayout | RequestTables,
        num_rows: int,
        *,
        seq_lens: Tensor | None = None,
        lengths_dtype: torch.dtype = torch.int32,
        token_dtype: torch.dtype = torch.int64,
        hidden_shape: tuple[int, ...] | None = None,
        hidden_dtype: torch.dtype = torch.bfloat16,
        counts: bool = False,
    ) -> AdvancedStep:
        """Uninitialised buffers for the ``out=`` form.

        Args:
            pools: layout or tables that name the pools and the device.
            num_rows: B.
            seq_lens: the buffer of the old lengths, to change them in place; None makes a new one.
            lengths_dtype: of the new one: that of the old lengths.
            token_dtype: dtype of the verify's token ids.
            hidden_shape, hidden_dtype: of one token's hidden states; None for none.
            counts: whether ``valid_counts`` and ``rejected_lens`` are wanted.

        Raises:
            ValueError: a negative number, or lengths of another shape.
        """
        if num_rows < 0:
            raise ValueError(f"AdvancedStep.empty: num_rows is {num_rows}, expected at least 0")
        if seq_lens is not None and list(seq_lens.shape) != [num_rows]:
            raise ValueError(f"AdvancedStep.empty: seq_lens has shape {list(seq_lens.shape)}, expected [{num_rows}]")

        full, swa = (num_rows if pools.has_pool(pool) else 0 for pool in ("full", "swa"))
        buffers: list[Buffer] = [
            (INT32, num_rows),
            (number_of(token_dtype), num_rows),
            (INT64, num_rows),
            (INT32, full),
            (INT32, swa),
            (INT64, num_rows),
        ]
        if seq_lens is None:
            buffers.append((number_of(lengths_dtype), num_rows))
        if hidden_shape is not None:
            buffers.append((number_of(hidden_dtype), num_rows, *hidden_shape))
        if counts:
            buffers += [(INT32, num_rows), (INT32, num_rows)]
        made = empty_tensors(buffers, pools.device)
        # The optional ones lie behind the six.
        rest = iter(made[6:])
        result = cls(next(rest) if seq_lens is None else seq_lens, *made[:6])
        result.hidden_states = None if hidden_shape is None else next(rest)
        result.valid_counts, result.rejected_lens = next(rest, None), next(rest, None)
        return result

"""Slots of one step in all six pools (docs/spec.md, verify bundle and allocation)."""

from dataclasses import dataclass

from torch import Tensor


@dataclass
class OutCacheLoc:
    """Slots, int32, on the tables' device.

    ``out_full_loc``, ``out_swa_loc``, ``out_c4_state_loc`` and ``out_c128_state_loc`` are token-aligned ``[T]``: the
    tokens of row i lie at ``cu_seqlens[i]``; 0 where the token has no slot. ``out_c4_loc`` and ``out_c128_loc`` are
    dense in batch order, one entry for each group that the step completes. A pool that does not exist has 0 entries.

    Source: docs/spec.md, verify bundle.
    """

    out_full_loc: Tensor
    out_swa_loc: Tensor
    out_c4_loc: Tensor
    out_c128_loc: Tensor
    out_c4_state_loc: Tensor
    out_c128_state_loc: Tensor

    def in_order(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The six slot tensors in table order, as the ops take them."""
        return (
            self.out_full_loc,
            self.out_swa_loc,
            self.out_c4_loc,
            self.out_c128_loc,
            self.out_c4_state_loc,
            self.out_c128_state_loc,
        )

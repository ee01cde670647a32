"""All single-token passes of a multi-step draft (docs/spec.md, draft steps)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dsv4_npu_ops.layout.buffers import INT32, INT64, empty_tensors, number_of


@dataclass(slots=True)
class DraftSteps:
    """S steps of N entries; row j of every tensor belongs to step j, and no two rows share memory.

    Entry ``request * topk + k`` is draft k of a request; entries behind the last request are dummies. ``slots``: int32
    ``[S, N]``, where the draft's KV goes, or the dummy slot. ``positions``: int64 ``[S, N]``, L + j, 0 for dummies.
    ``kv_lens``: int32 ``[S, N]``, L + j + 1, 1 for dummies. ``cos``, ``sin``: ``[S, N, D]``, RoPE rows at
    ``positions``, in the dtype of the tables. MTP layers do not compress: there are no slots of groups or states.

    Source: docs/spec.md, draft steps.
    """

    slots: Tensor
    positions: Tensor
    kv_lens: Tensor
    cos: Tensor
    sin: Tensor

    @classmethod
    def empty(
        cls,
        num_steps: int,
        num_entries: int,
        rope_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> DraftSteps:
        """Uninitialised buffers for the ``out=`` form.

        Args:
            num_steps: S.
            num_entries: N, at least requests x topk.
            rope_dim: D, elements of a RoPE row.
            dtype: of the RoPE tables.
            device: where the step runs.

        Raises:
            ValueError: a negative number.
        """
        if min(num_steps, num_entries, rope_dim) < 0:
            raise ValueError(
                f"DraftSteps.empty: num_steps, num_entries and rope_dim are {num_steps}, {num_entries} and {rope_dim}, "
                "expected at least 0"
            )
        rope = (number_of(dtype), num_steps, num_entries, rope_dim)
        places, positions = (INT32, num_steps, num_entries), (INT64, num_steps, num_entries)
        return cls(*empty_tensors([places, positions, places, rope, rope], device))

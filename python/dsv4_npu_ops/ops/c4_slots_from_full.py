"""c4 slots from full slots: wrapper and fake kernels of ``torch.ops.dsv4_npu_ops.c4_slots_from_full``."""

import torch
from torch import Tensor

from dsv4_npu_ops.ops.caller_errors import caller_errors
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only

_slots = torch.ops.dsv4_npu_ops.c4_slots_from_full.default
_slots_out = torch.ops.dsv4_npu_ops.c4_slots_from_full.out


@caller_errors({"full_loc": "out_full_loc", "c4_loc": "out"})
def c4_slots_from_full(out_full_loc: Tensor, *, num_groups: int | None = None, out: Tensor | None = None) -> Tensor:
    """Slots of the ratio-4 groups that a step completes, for engines whose c4 entries live in the full pool.

    Args:
        out_full_loc: int32 ``[T]`` full slots of the step's tokens; 0 and negative entries are nobody's. Pages hold at
            least 4 slots.
        num_groups: entries of the result, at least the groups that are completed; default exactly those on a CPU,
            required on a device.
        out: int32 ``[capacity]`` on the same device, overwritten to the last entry; ``num_groups`` is ignored.

    Returns:
        ``out``, or int32 ``[num_groups]``: full slot // 4 of every positive full slot that is 3 modulo 4, in the order
        of the input, then 0.

    Raises:
        ValueError: wrong dtype, shape or device, or too few entries (on a CPU; nothing was written).

    Source: docs/spec.md, c4 slots from full slots.
    """
    if out is not None:
        _slots_out(out_full_loc, c4_loc=out)
        return out
    if num_groups is None:
        if not out_full_loc.is_cpu:
            raise ValueError("c4_slots_from_full: num_groups is None, expected a number when the slots are on a device")
        num_groups = int(((out_full_loc > 0) & (out_full_loc % 4 == 3)).sum())
    return _slots(out_full_loc, num_groups)


@fake_kernel("c4_slots_from_full")
def _(full_loc: Tensor, num_groups: int) -> Tensor:
    return full_loc.new_empty((num_groups,), dtype=torch.int32)


fake_kernel("c4_slots_from_full.out")(writes_only)

"""Sizes of a step from host lengths: fake kernel of ``torch.ops.dsv4_npu_ops.step_sizes``."""

import torch
from torch import Tensor

from dsv4_npu_ops.layout.step_rows import COMMITTED, FINAL, StepRows
from dsv4_npu_ops.ops.fake_kernels import fake_kernel

_step_sizes = torch.ops.dsv4_npu_ops.step_sizes.default


@fake_kernel("step_sizes")
def _(
    seq_lens: Tensor, operand: Tensor | None, form: int, width: int
) -> tuple[torch.SymInt, torch.SymInt, torch.SymInt]:
    if seq_lens.device.type != "cpu":
        raise ValueError(f"step_sizes: seq_lens is on {seq_lens.device}, expected a host tensor (cpu)")
    context = torch.library.get_ctx()
    return context.new_dynamic_size(), context.new_dynamic_size(), context.new_dynamic_size()


def step_sizes(rows: StepRows) -> tuple[int, int, int]:
    """``(num_tokens, c4_groups, c128_groups)``: tokens, padding included, and completed groups of rows on the host.

    Raises:
        ValueError: negative or decreasing lengths.
    """
    return _step_sizes(rows.seq_lens, rows.operand, rows.form, rows.width)


def host_num_tokens(rows: StepRows) -> int:
    """Tokens of a step whose ``num_tokens`` was not given: known from the shape, or read from host tensors.

    Raises:
        ValueError: the lengths are on a device, where they are never read back.
    """
    if rows.form in (FINAL, COMMITTED):
        return rows.seq_lens.shape[0] * max(0, rows.width)
    if not rows.seq_lens.is_cpu:
        device = rows.seq_lens.device
        raise ValueError(f"step: num_tokens is None, expected a number: lengths on {device} are not read")
    return step_sizes(rows)[0]

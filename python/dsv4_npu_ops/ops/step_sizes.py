"""Sizes of a step from host lengths: fake kernel of ``torch.ops.dsv4_npu_ops.step_sizes``."""

import torch
from torch import Tensor

from dsv4_npu_ops.layout.step_rows import COMMITTED, FINAL, StepRows
from dsv4_npu_ops.ops.fake_kernels import fake_kernel

_step_sizes = torch.ops.dsv4_npu_ops.step_sizes.default


@fake_kernel("step_sizes")
def _(seq_lens: Tensor, operand: Tensor | None, form: int, width: int) -> tuple[torch.SymInt | Tensor, ...]:
    if seq_lens.device.type != "cpu":
        raise ValueError(f"step_sizes: seq_lens is on {seq_lens.device}, expected a host tensor (cpu)")
    context = torch.library.get_ctx()
    sizes = (context.new_dynamic_size() for _ in range(5))
    return *sizes, seq_lens.new_empty(seq_lens.shape, dtype=torch.int32)


def step_sizes(rows: StepRows) -> tuple[int, int, int, int, int, Tensor]:
    """What the sizes of a step depend on, of rows on the host.

    Returns:
        ``(num_tokens, c4_groups, c128_groups, max_seq_len, max_new_tokens, final_lens)``: tokens, padding included;
        completed groups; the longest request, with its new tokens; the most new tokens of a row; and int32 ``[B]``
        lengths of the rows with their new tokens, 0 in padding.

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

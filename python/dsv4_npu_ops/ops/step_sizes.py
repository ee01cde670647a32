"""Sizes of a step from host lengths: fake kernel of ``torch.ops.dsv4_npu_ops.step_sizes`` and the forms of a step."""

from operator import index

import torch
from torch import Tensor

import dsv4_npu_ops._C  # noqa: F401  (loading it registers torch.ops.dsv4_npu_ops)
from dsv4_npu_ops.ops.fake_kernels import fake_kernel

FORM_PREFILL = 0
FORM_DECODE = 1
FORM_VERIFY = 2
FORM_VERIFY_RAGGED = 3

step_sizes = torch.ops.dsv4_npu_ops.step_sizes.default
"""``(seq_lens, prefix_lens, num_draft_tokens, form, width) -> (num_tokens, c4_groups, c128_groups)`` of a step.

Lengths are host tensors ``[B]`` of int32 or int64. Raises ValueError for negative or decreasing lengths.
"""


@fake_kernel("step_sizes")
def _(
    seq_lens: Tensor, prefix_lens: Tensor | None, num_draft_tokens: Tensor | None, form: int, width: int
) -> tuple[torch.SymInt, torch.SymInt, torch.SymInt]:
    if seq_lens.device.type != "cpu":
        raise ValueError(f"step_sizes: seq_lens is on {seq_lens.device}, expected a host tensor (cpu)")
    context = torch.library.get_ctx()
    return context.new_dynamic_size(), context.new_dynamic_size(), context.new_dynamic_size()


def check_rows(op: str, **rows: Tensor) -> None:
    """Checks that every argument is a tensor of one entry a row, which sizes are read from; the op checks the rest.

    Raises:
        ValueError: naming the argument.
    """
    for name, values in rows.items():
        if not isinstance(values, Tensor):
            raise ValueError(f"{op}: {name} is {values!r}, expected a tensor")
        if values.dim() != 1:
            raise ValueError(f"{op}: {name} has shape {list(values.shape)}, expected 1 dimension")


def verify_form(op: str, num_draft_tokens: int | Tensor) -> tuple[int, int, Tensor | None]:
    """``(form, width, widths)`` of a verify: one width for every row, or a tensor of one a row.

    Raises:
        ValueError: ``num_draft_tokens`` is neither.
    """
    if isinstance(num_draft_tokens, Tensor):
        check_rows(op, num_draft_tokens=num_draft_tokens)
        return FORM_VERIFY_RAGGED, 0, num_draft_tokens
    try:
        return FORM_VERIFY, index(num_draft_tokens), None
    except TypeError:
        raise ValueError(f"{op}: num_draft_tokens is {num_draft_tokens!r}, expected an integer or a tensor") from None


def host_num_tokens(
    name: str, seq_lens: Tensor, prefix_lens: Tensor | None, num_draft_tokens: Tensor | None, form: int, width: int
) -> int:
    """Tokens of a step whose ``num_tokens`` was not given: known from the shape, or read from host tensors.

    Raises:
        ValueError: the lengths are on a device, where they are never read back.
    """
    if form == FORM_DECODE:
        return seq_lens.shape[0]
    if form == FORM_VERIFY:
        return seq_lens.shape[0] * max(0, width)
    if not seq_lens.is_cpu:
        raise ValueError(f"{name}: num_tokens is None, expected a number: lengths on {seq_lens.device} are not read")
    return step_sizes(seq_lens, prefix_lens, num_draft_tokens, form, width)[0]

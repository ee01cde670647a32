"""Slots of the steps of a draft, laid out once for all steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dsv4_npu_ops.engines.hooks import Hook

_BACKEND = "sglang.srt.hardware_backend.npu.attention.ascend_dsv4_backend.DeepseekV4AscendMultiStepDraftBackend"
_BY_STEP = "_dsv4_npu_ops_by_step"


def common_template(original: Callable[..., Any], self: Any, forward_batch: Any, call_fn: Callable[..., Any]) -> None:
    """``common_template``: while it goes through the steps, slots are laid out by step once."""
    setattr(self, _BY_STEP, {})
    try:
        original(self, forward_batch, call_fn)
    finally:
        self.__dict__.pop(_BY_STEP, None)  # a plug-in that was registered twice has taken it already


def step_out_cache_loc_dsv4(original: Callable[..., Any], self: Any, forward_batch: Any, step_id: int) -> Any:
    """``_step_out_cache_loc_dsv4``: the part of a reservation (request, topk, step) that is a step's."""
    by_step = getattr(self, _BY_STEP, None)
    bundle = forward_batch.out_cache_loc_dsv4
    steps = self.speculative_num_steps
    width = forward_batch.batch_size * self.topk
    if by_step is None or bundle is None or forward_batch.out_cache_loc is None or width == 0:
        return original(self, forward_batch, step_id)
    reserved = bundle.out_full_loc.numel()
    if reserved < width * steps and (reserved % steps or reserved // steps % self.topk or reserved == 0):
        return original(self, forward_batch, step_id)
    used = min(reserved, width * steps)
    if id(bundle) not in by_step:
        by_step[id(bundle)] = (
            bundle,
            [None if loc is None else _by_step(loc[:used], steps) for loc in (bundle.out_full_loc, bundle.out_swa_loc)],
        )
    full, swa = by_step[id(bundle)][1]

    def nothing(loc: Tensor | None) -> Tensor | None:
        return None if loc is None else loc.new_empty((0,))

    return type(bundle)(
        out_full_loc=full[step_id],
        out_swa_loc=swa[step_id],
        out_c4_loc=nothing(bundle.out_c4_loc),
        out_c128_loc=nothing(bundle.out_c128_loc),
    )


def _by_step(slots: Tensor, steps: int) -> Tensor:
    return torch.t(slots.view(-1, steps)).contiguous()


HOOKS = (
    Hook(f"{_BACKEND}.common_template", common_template, "0.5.20", "0.5.23"),
    Hook(f"{_BACKEND}._step_out_cache_loc_dsv4", step_out_cache_loc_dsv4, "0.5.20", "0.5.23"),
)

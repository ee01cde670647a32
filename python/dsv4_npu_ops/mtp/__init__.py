"""A DeepSeek-V4 forward with MTP drafting that keeps its caches in the paged pools. Needs transformers.

``Runner.generate`` serves requests; below it, in the order of a step: ``scheduler`` admits, ``batch`` builds the step's
bookkeeping through the ops, ``drafter`` guesses with the MTP layer (``nextn``), ``target`` verifies. ``attention`` and
``compressor`` read and write the tensors of ``pools`` where ``step`` says. ``run`` puts a step together; ``overlapped``
does so one step ahead of what the host has read.
"""

from dsv4_npu_ops.mtp.checkpoint import load_checkpoint, save_checkpoint
from dsv4_npu_ops.mtp.nextn import NextnLayer
from dsv4_npu_ops.mtp.runner import Completion, Runner
from dsv4_npu_ops.mtp.stats import RunStats

__all__ = ["Completion", "NextnLayer", "RunStats", "Runner", "load_checkpoint", "save_checkpoint"]

"""The model and the pools that both processes of these tests have."""

from pathlib import Path

import torch

from dsv4_npu_ops import KVLayout
from dsv4_npu_ops.layout import POOLS
from dsv4_npu_ops.mtp.checkpoint import load_checkpoint
from dsv4_npu_ops.mtp.runner import Runner

FOLDER = Path(__file__).parents[2] / "examples" / "tiny_checkpoint"


def make_models():
    """Target and MTP layer of the small trained checkpoint."""
    torch.set_num_threads(1)
    return load_checkpoint(FOLDER)


def make_runner(models, page_size: int = 16, max_context_len: int = 640) -> Runner:
    """Pools for two requests at once; every unwritten row is NaN, so that a page that is missing is noticed."""
    pages = {
        pool: 2 * (max_context_len // unit // page_size + 2)
        for pool, unit in zip(POOLS, (1, 1, 4, 128, 1, 1), strict=True)
    }
    return Runner(*models, KVLayout(page_size, 128, 2, max_context_len, pages), fill=float("nan"))

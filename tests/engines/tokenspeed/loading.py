"""TokenSpeed's own functions for slots, unmodified, on a CPU: what is not installed and not needed is a stub."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

# Before the stubs: torch imports what is stubbed only for the engine.
import torch
import torch._dynamo
import torch._inductor.compile_fx  # noqa: F401

import dsv4_npu_ops  # noqa: F401
from engines.stub_modules import StubFinder, bare_package, is_one_of

# What slots do not touch: models, kernels and servers.
STUBBED = (
    "tokenspeed.runtime.layers.attention.deepseek_v4_ops",
    "tokenspeed.runtime.layers.attention.kv_cache.arena",
    "tokenspeed.runtime.layers.attention.kv_cache.base",
    "tokenspeed.runtime.layers.attention.kv_cache.recipes",
    "tokenspeed.runtime.utils",
    "tokenspeed_kernel",
)


def load(folder: Path, version: str) -> SimpleNamespace:
    """``metadata``: the class of a batch's tables; ``raw_slots``: slots of tokens in a table. Once a process.

    Args:
        folder: the unpacked wheel.
    """
    root = f"{folder}/tokenspeed"
    bare_package("tokenspeed", root)
    bare_package("tokenspeed.runtime.configs", f"{root}/runtime/configs", has_everything=True)
    sys.meta_path.insert(0, StubFinder(lambda name: is_one_of(name, STUBBED)))
    attention = "tokenspeed.runtime.layers.attention"
    if version == "0.1.0":
        pools = importlib.import_module(f"{attention}.kv_cache.deepseek_v4")
        return SimpleNamespace(metadata=pools.DeepseekV4CacheMetadata, raw_slots=pools._group_slot_mapping_from_raw)
    pools = importlib.import_module(f"{attention}.kv_cache.hybrid_deepseek_v4")
    tables = importlib.import_module(f"{attention}.page_table")
    return SimpleNamespace(metadata=pools.DeepseekV4CacheMetadata, raw_slots=tables.group_slot_mapping_from_raw)

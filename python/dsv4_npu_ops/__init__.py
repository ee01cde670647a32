"""Bookkeeping ops of DeepSeek-V4 serving on Ascend NPUs, which also run on a CPU. See README.md and docs/spec.md."""

import torch  # noqa: F401  (its libraries must be loaded before the extension)

from dsv4_npu_ops._C import version as __version__
from dsv4_npu_ops.cache import KVLayout, OutCacheLoc, RequestTables
from dsv4_npu_ops.ops import rope_gather

__all__ = ["KVLayout", "OutCacheLoc", "RequestTables", "__version__", "rope_gather"]

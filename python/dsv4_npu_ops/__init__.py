"""Bookkeeping ops of DeepSeek-V4 serving on Ascend NPUs, which also run on a CPU. See README.md and docs/spec.md."""

import torch  # noqa: F401  (its libraries must be loaded before the extension)

from dsv4_npu_ops._C import version as __version__
from dsv4_npu_ops.cache import CompressMetadata, KVLayout, OutCacheLoc, RequestTables
from dsv4_npu_ops.ops import (
    build_compress_metadata_decode,
    build_compress_metadata_prefill,
    build_compress_metadata_verify,
    rope_gather,
)

__all__ = [
    "CompressMetadata",
    "KVLayout",
    "OutCacheLoc",
    "RequestTables",
    "__version__",
    "build_compress_metadata_decode",
    "build_compress_metadata_prefill",
    "build_compress_metadata_verify",
    "rope_gather",
]

"""Paged KV cache bookkeeping: layout, request tables, slots of a step, allocation."""

from dsv4_npu_ops.cache.advanced_step import AdvancedStep
from dsv4_npu_ops.cache.compress_metadata import CompressMetadata
from dsv4_npu_ops.cache.draft_steps import DraftSteps
from dsv4_npu_ops.cache.host_staging import HostStaging
from dsv4_npu_ops.cache.layout import POOLS, RAW_TOKENS_PER_SLOT, KVLayout
from dsv4_npu_ops.cache.out_cache_loc import OutCacheLoc
from dsv4_npu_ops.cache.shared_prefix import SharedPrefix
from dsv4_npu_ops.cache.tables import RequestTables
from dsv4_npu_ops.cache.verify_step import VerifyStep

from dsv4_npu_ops.cache.allocator import KVAllocator, PoolExhausted  # isort: skip  (its ops need the names above)

__all__ = [
    "POOLS",
    "RAW_TOKENS_PER_SLOT",
    "AdvancedStep",
    "CompressMetadata",
    "DraftSteps",
    "HostStaging",
    "KVAllocator",
    "KVLayout",
    "OutCacheLoc",
    "PoolExhausted",
    "RequestTables",
    "SharedPrefix",
    "VerifyStep",
]

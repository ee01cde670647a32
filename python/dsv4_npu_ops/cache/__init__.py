"""Paged KV cache bookkeeping: layout, request tables, slots of a step."""

from dsv4_npu_ops.cache.compress_metadata import CompressMetadata
from dsv4_npu_ops.cache.layout import POOLS, RAW_TOKENS_PER_SLOT, KVLayout
from dsv4_npu_ops.cache.out_cache_loc import OutCacheLoc
from dsv4_npu_ops.cache.tables import RequestTables

__all__ = ["POOLS", "RAW_TOKENS_PER_SLOT", "CompressMetadata", "KVLayout", "OutCacheLoc", "RequestTables"]

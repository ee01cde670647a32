"""The allocator, above the ops that carry its decisions out, and the way of small host tensors to a device."""

from dsv4_npu_ops.cache.allocator import KVAllocator, PoolExhausted
from dsv4_npu_ops.cache.host_staging import HostStaging

__all__ = ["HostStaging", "KVAllocator", "PoolExhausted"]

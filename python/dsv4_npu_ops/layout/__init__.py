"""Shapes of pools, tables and results: what ops read and write. Knows no op."""

from dsv4_npu_ops.layout import pytrees  # noqa: F401  (importing it registers the types)
from dsv4_npu_ops.layout.advanced_step import AdvancedStep
from dsv4_npu_ops.layout.batch_page_table import BatchPageTable
from dsv4_npu_ops.layout.compress_metadata import CompressMetadata
from dsv4_npu_ops.layout.compressor_metadata import CompressorMetadata
from dsv4_npu_ops.layout.draft_steps import DraftSteps
from dsv4_npu_ops.layout.kv_layout import POOLS, RAW_TOKENS_PER_SLOT, KVLayout
from dsv4_npu_ops.layout.out_cache_loc import OutCacheLoc
from dsv4_npu_ops.layout.peak_pages import peak_pages
from dsv4_npu_ops.layout.pool_address import (
    DividedSlots,
    MappedSlots,
    PageRing,
    PageTable,
    RequestBank,
    RequestRing,
    SlotTable,
)
from dsv4_npu_ops.layout.shared_prefix import SharedPrefix
from dsv4_npu_ops.layout.step import Step
from dsv4_npu_ops.layout.step_rows import StepRows
from dsv4_npu_ops.layout.tables import RequestTables
from dsv4_npu_ops.layout.verify_step import VerifyStep

__all__ = [
    "POOLS",
    "RAW_TOKENS_PER_SLOT",
    "AdvancedStep",
    "BatchPageTable",
    "CompressMetadata",
    "CompressorMetadata",
    "DividedSlots",
    "DraftSteps",
    "KVLayout",
    "MappedSlots",
    "OutCacheLoc",
    "PageRing",
    "PageTable",
    "RequestBank",
    "RequestRing",
    "RequestTables",
    "SharedPrefix",
    "SlotTable",
    "Step",
    "StepRows",
    "VerifyStep",
    "peak_pages",
]

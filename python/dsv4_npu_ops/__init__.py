"""Bookkeeping ops of DeepSeek-V4 serving on Ascend NPUs, which also run on a CPU. See README.md and docs/spec.md.

README.md and docs/ are in the source tree, not in the wheel.
"""

from pathlib import Path as _Path

from dsv4_npu_ops._extension import version as __version__
from dsv4_npu_ops.cache import HostStaging, KVAllocator, PoolExhausted
from dsv4_npu_ops.device_errors import DeviceError, device_errors
from dsv4_npu_ops.graph_capture import graph_capture
from dsv4_npu_ops.launch_dump import dump_launches
from dsv4_npu_ops.layout import (
    AdvancedStep,
    BatchPageTable,
    CompressMetadata,
    CompressorMetadata,
    DividedSlots,
    DraftSteps,
    KVLayout,
    MappedSlots,
    OutCacheLoc,
    PageRing,
    PageTable,
    RequestBank,
    RequestRing,
    RequestTables,
    SharedPrefix,
    SlotTable,
    Step,
    StepRows,
    VerifyStep,
    peak_pages,
)
from dsv4_npu_ops.npu_library import load_npu_library
from dsv4_npu_ops.ops import (
    advance_step,
    apply_rotary,
    build_compress_metadata_decode,
    build_compress_metadata_prefill,
    build_compress_metadata_verify,
    build_draft_steps,
    build_rope_tables,
    build_step,
    build_verify_step,
    c4_slots_from_full,
    compressor_metadata,
    flatten_verify_bundle,
    rope_gather,
    token_slots,
    write_req_tables,
)
from dsv4_npu_ops.rope import RopeCache, build_freqs_cis

load_npu_library()

cmake_prefix_path: str = str(_Path(__file__).parent)
"""Where CMake finds the package, for C++ programs (docs/cpp.md)."""

__all__ = [
    "AdvancedStep",
    "BatchPageTable",
    "CompressMetadata",
    "CompressorMetadata",
    "DeviceError",
    "DividedSlots",
    "DraftSteps",
    "HostStaging",
    "KVAllocator",
    "KVLayout",
    "MappedSlots",
    "OutCacheLoc",
    "PageRing",
    "PageTable",
    "PoolExhausted",
    "RequestBank",
    "RequestRing",
    "RequestTables",
    "RopeCache",
    "SharedPrefix",
    "SlotTable",
    "Step",
    "StepRows",
    "VerifyStep",
    "__version__",
    "advance_step",
    "apply_rotary",
    "build_compress_metadata_decode",
    "build_compress_metadata_prefill",
    "build_compress_metadata_verify",
    "build_draft_steps",
    "build_freqs_cis",
    "build_rope_tables",
    "build_step",
    "build_verify_step",
    "c4_slots_from_full",
    "cmake_prefix_path",
    "compressor_metadata",
    "device_errors",
    "dump_launches",
    "flatten_verify_bundle",
    "graph_capture",
    "peak_pages",
    "rope_gather",
    "token_slots",
    "write_req_tables",
]

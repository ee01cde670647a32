"""Thin wrappers, one module an op; each names the C++ op that does the work."""

from dsv4_npu_ops import _C  # noqa: F401  (loading it registers torch.ops.dsv4_npu_ops)
from dsv4_npu_ops.ops.advance_step import advance_step
from dsv4_npu_ops.ops.apply_rotary import apply_rotary
from dsv4_npu_ops.ops.c4_slots_from_full import c4_slots_from_full
from dsv4_npu_ops.ops.compress_metadata import (
    build_compress_metadata_decode,
    build_compress_metadata_prefill,
    build_compress_metadata_verify,
)
from dsv4_npu_ops.ops.compressor_metadata import compressor_metadata
from dsv4_npu_ops.ops.draft_steps import build_draft_steps
from dsv4_npu_ops.ops.extend_from_lists import extend_from_lists, extend_needs
from dsv4_npu_ops.ops.map_full_to_swa import map_full_to_swa
from dsv4_npu_ops.ops.release_pages import release_pages
from dsv4_npu_ops.ops.reserve_extend import reserve_extend
from dsv4_npu_ops.ops.rope_gather import rope_gather
from dsv4_npu_ops.ops.rope_tables import build_rope_tables
from dsv4_npu_ops.ops.share_pages import share_pages
from dsv4_npu_ops.ops.step import build_step
from dsv4_npu_ops.ops.token_slots import token_slots
from dsv4_npu_ops.ops.verify_bundle import flatten_verify_bundle
from dsv4_npu_ops.ops.verify_step import build_verify_step
from dsv4_npu_ops.ops.write_req_tables import write_req_tables

__all__ = [
    "advance_step",
    "apply_rotary",
    "build_compress_metadata_decode",
    "build_compress_metadata_prefill",
    "build_compress_metadata_verify",
    "build_draft_steps",
    "build_rope_tables",
    "build_step",
    "build_verify_step",
    "c4_slots_from_full",
    "compressor_metadata",
    "extend_from_lists",
    "extend_needs",
    "flatten_verify_bundle",
    "map_full_to_swa",
    "release_pages",
    "reserve_extend",
    "rope_gather",
    "share_pages",
    "token_slots",
    "write_req_tables",
]

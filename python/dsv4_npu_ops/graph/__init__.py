"""Static metadata for captured graphs: fixed buffers that ``out=`` ops refresh (docs/spec.md, graphs)."""

from dsv4_npu_ops.graph.buckets import GraphBuckets
from dsv4_npu_ops.graph.draft_extend import DraftExtend
from dsv4_npu_ops.graph.multi_step_draft import DraftStep, MultiStepDraft
from dsv4_npu_ops.graph.static_inputs import StaticInputs
from dsv4_npu_ops.graph.verify_bucket import BucketShape, VerifyBucket

__all__ = [
    "BucketShape",
    "DraftExtend",
    "DraftStep",
    "GraphBuckets",
    "MultiStepDraft",
    "StaticInputs",
    "VerifyBucket",
]

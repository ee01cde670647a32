"""Groups, slots and rotations for an engine's own block table: wrapper and fake kernel of the op of this name."""

import torch
from torch import Tensor

from dsv4_npu_ops.layout.compressor_metadata import CompressorMetadata
from dsv4_npu_ops.ops.caller_errors import caller_errors, field_names
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only

_metadata = torch.ops.dsv4_npu_ops.compressor_metadata.default


@caller_errors(out=field_names("out", CompressorMetadata))
def compressor_metadata(
    rope_cos: Tensor | None,
    rope_sin: Tensor | None,
    cu_seqlens: Tensor,
    start_pos: Tensor,
    kv_block_table: Tensor,
    kv_block_size: int,
    slot_mapping_format: int,
    compress_ratio: int,
    num_rows: int,
    num_reqs: int,
    *,
    req_pool_indices: Tensor | None = None,
    out: CompressorMetadata | None = None,
) -> CompressorMetadata:
    """Where the compressed entries of this step go and how they are rotated, in one launch.

    Request i brings ``cu_seqlens[i + 1] - cu_seqlens[i]`` tokens at positions from ``start_pos[i]``. Every group of
    ``compress_ratio`` positions whose last one is among them gets a row, in batch order. Group g has slot
    ``kv_block_table[i, g // kv_block_size] * kv_block_size + g % kv_block_size`` and the rotation of its first
    position. A group with a negative block, or past the columns of the block table or the rows of the RoPE tables,
    keeps its row, which becomes a dummy: cos 1, sin 0, slot -1, position 0. So do all rows after the last group. Block
    0 is an ordinary block, and a request with a negative ``start_pos`` brings no group. With ratio 1 these are slots
    and positions of tokens.

    Args:
        rope_cos, rope_sin: tables ``[max_pos, D]`` of float32, float16 or bfloat16, contiguous; None where no RoPE rows
            are wanted: groups may then have any position.
        cu_seqlens: ``[>= num_reqs + 1]`` int32 or int64, not decreasing.
        start_pos: ``[>= num_reqs]`` int32 or int64, tokens in the cache before the step.
        kv_block_table: ``[rows, W]`` int32 or int64, rows at any stride; a row for each request, or those that
            ``req_pool_indices`` names.
        kv_block_size: slots of a block; any positive number, best a power of two.
        slot_mapping_format: 1 for flat slots, 2 for pairs (block, offset).
        compress_ratio: tokens of a group; any positive number, best a power of two.
        num_rows: rows of the result. ``min(T, T // compress_ratio + num_reqs)`` is enough for T tokens.
        num_reqs: requests that are read; what the tensors hold beyond it is not looked at.
        req_pool_indices: ``[>= num_reqs]`` int32 or int64 rows of the block table; None: request i has row i. That of a
            request without completed groups is not looked at.
        out: buffers (``CompressorMetadata.empty``), contiguous, of ``num_rows`` rows or more, which are overwritten to
            their last row; what is None is not computed. Nothing is allocated.

    Returns:
        ``out``, or a new ``CompressorMetadata`` of ``num_rows`` rows, without ``cos`` and ``sin`` where there are no
        RoPE tables.

    Raises:
        ValueError: wrong dtype, shape, device or strides; on a CPU also decreasing ``cu_seqlens``, more groups than
            ``num_rows``, a request outside of the block table and slots that do not fit int32. Nothing was written.

    Source: docs/spec.md, compressor metadata.
    """
    if out is None:
        out = _empty(rope_cos, num_rows, slot_mapping_format, cu_seqlens.device)
    _metadata(
        rope_cos,
        rope_sin,
        cu_seqlens,
        start_pos,
        req_pool_indices,
        kv_block_table,
        kv_block_size,
        slot_mapping_format,
        compress_ratio,
        num_rows,
        num_reqs,
        out.cos,
        out.sin,
        out.slot_mapping,
        out.positions,
    )
    return out


def _empty(
    rope_cos: Tensor | None, num_rows: int, slot_mapping_format: int, device: torch.device
) -> CompressorMetadata:
    if rope_cos is None:
        wanted = ("slot_mapping", "positions")
        return CompressorMetadata.empty(
            num_rows, 0, wanted=wanted, slot_mapping_format=slot_mapping_format, device=device
        )
    if rope_cos.dim() != 2:
        raise ValueError(f"compressor_metadata: rope_cos has shape {list(rope_cos.shape)}, expected 2 dimensions")
    return CompressorMetadata.empty(
        num_rows,
        rope_cos.shape[1],
        slot_mapping_format=slot_mapping_format,
        rope_dtype=rope_cos.dtype,
        device=device,
    )


fake_kernel("compressor_metadata")(writes_only)

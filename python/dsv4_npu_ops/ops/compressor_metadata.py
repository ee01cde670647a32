"""Groups, slots and rotations for an engine's own block table: wrapper and fake kernels of the op of this name."""

import torch
from torch import Tensor

from dsv4_npu_ops.ops.caller_errors import caller_errors
from dsv4_npu_ops.ops.fake_kernels import fake_kernel, writes_only


@caller_errors(out={"cos_out": "out[0]", "sin_out": "out[1]", "slot_mapping_out": "out[2]"})
def compressor_metadata(
    rope_cos: Tensor,
    rope_sin: Tensor,
    cu_seqlens: Tensor,
    start_pos: Tensor,
    kv_block_table: Tensor,
    kv_block_size: int,
    slot_mapping_format: int,
    compress_ratio: int,
    num_rows: int,
    num_reqs: int,
    *,
    out: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Where the compressed entries of this step go and how they are rotated, in one launch.

    Request i brings ``cu_seqlens[i + 1] - cu_seqlens[i]`` tokens at positions from ``start_pos[i]``. Every group of
    ``compress_ratio`` positions whose last one is among them gets a row, in batch order. Group g has slot
    ``kv_block_table[i, g // kv_block_size] * kv_block_size + g % kv_block_size`` and the rotation of its first
    position. A group with a negative block, or past the columns of the block table or the rows of the RoPE tables,
    keeps its row, which becomes a dummy: cos 1, sin 0, slot -1. So do all rows after the last group. Block 0 is an
    ordinary block, and a request with a negative ``start_pos`` brings no group.

    Args:
        rope_cos, rope_sin: tables ``[max_pos, D]`` of float32, float16 or bfloat16, contiguous.
        cu_seqlens: ``[>= num_reqs + 1]`` int32 or int64, not decreasing.
        start_pos: ``[>= num_reqs]`` int32 or int64, tokens in the cache before the step.
        kv_block_table: ``[>= num_reqs, W]`` int32; rows may be strided.
        kv_block_size: slots of a block; any positive number, best a power of two.
        slot_mapping_format: 1 for flat slots, 2 for pairs (block, offset).
        compress_ratio: tokens of a group; any positive number.
        num_rows: rows of the result. ``min(T, T // compress_ratio + num_reqs)`` is enough for T tokens.
        num_reqs: requests that are read; what the three tensors hold beyond it is not looked at.
        out: ``(cos, sin, slot_mapping)`` buffers, contiguous, of ``num_rows`` rows or more, which are overwritten to
            their last row; nothing is allocated.

    Returns:
        ``(cos, sin, slot_mapping)``: ``[num_rows, 1, 1, D]`` twice, in the tables' dtype, and int32 ``[num_rows]`` or
        ``[num_rows, 2]``. The pair of a dummy row is (-1, ``kv_block_size - 1``).

    Raises:
        ValueError: wrong dtype, shape, device or strides; on a CPU also decreasing ``cu_seqlens``, more groups than
            ``num_rows`` and slots that do not fit int32. Nothing was written.

    Source: docs/spec.md, what other engines call.
    """
    arguments = (
        rope_cos,
        rope_sin,
        cu_seqlens,
        start_pos,
        kv_block_table,
        kv_block_size,
        slot_mapping_format,
        compress_ratio,
        num_rows,
        num_reqs,
    )
    if out is None:
        return torch.ops.dsv4_npu_ops.compressor_metadata(*arguments)
    torch.ops.dsv4_npu_ops.compressor_metadata.out(*arguments, cos_out=out[0], sin_out=out[1], slot_mapping_out=out[2])
    return out


@fake_kernel("compressor_metadata")
def _(
    rope_cos: Tensor,
    rope_sin: Tensor,
    cu_seqlens: Tensor,
    start_pos: Tensor,
    kv_block_table: Tensor,
    kv_block_size: int,
    slot_mapping_format: int,
    compress_ratio: int,
    num_rows: int,
    num_reqs: int,
) -> tuple[Tensor, Tensor, Tensor]:
    rows = (num_rows, 1, 1, rope_cos.shape[1])
    slots = (num_rows, 2) if slot_mapping_format == 2 else (num_rows,)
    return rope_cos.new_empty(rows), rope_cos.new_empty(rows), rope_cos.new_empty(slots, dtype=torch.int32)


fake_kernel("compressor_metadata.out")(writes_only)

// In-place rotation: parameters, launch plan and index arithmetic, shared by the CPU loops and the device kernel.
#pragma once

#include "common/element_type.h"
#include "common/launch_plan.h"

// One tensor to rotate, [T, H, head_dim]; all strides in elements. num_heads 0: the tensor was not given.
struct RotaryOperand {
    int64_t num_heads;
    int64_t head_dim;
    int64_t token_stride;
    int64_t head_stride;
    int32_t element_type;  // see element_type.h; a device does not rotate float64
    int32_t reserved;      // keeps the struct free of padding
};

struct ApplyRotaryParams {
    RotaryOperand q;
    RotaryOperand kv;
    int64_t num_tokens;  // T
    int64_t rope_dim;    // D: the last D features of each head are rotated
    int64_t cos_stride;  // elements between two tokens' rows of cos
    int64_t sin_stride;
    int32_t inverse;     // sin is negated
    int32_t table_type;  // element type of cos and sin
};

namespace dsv4 {

// The first rotated feature of a head.
DSV4_HOST_DEVICE constexpr int64_t rotary_offset_elems(int64_t token, int64_t head, const RotaryOperand& x,
                                                       int64_t rope_dim) {
    return token * x.token_stride + head * x.head_stride + x.head_dim - rope_dim;
}

// Features that a tile holds, with the padding of its rows.
constexpr int64_t kRotaryTileElems = 3072;

// UB, in tiles of float32: features, and rows of cos and sin, as they are stored, each twice; features, their
// neighbours, cos and sin as float32; signs, offsets, and two halves of shifted features.
constexpr int64_t kRotaryUbBytes = (2 + 4 + 4 + 3) * kRotaryTileElems * 4;
static_assert(kRotaryUbBytes <= kUbBudgetBytes, "a tile does not fit into UB");

// The longest row: heads of a tile lie at most 255 blocks of UB apart, because one instruction rotates several.
constexpr int64_t kRotaryMaxDim = 255 * kUbBlockBytes / 4 / 16 * 16;

// Elements from one head of a tile to the next, the same for every element type.
DSV4_HOST_DEVICE constexpr int64_t rotary_pitch_elems(int64_t rope_dim) {
    return round_up<int64_t>(rope_dim, kUbBlockBytes / 2);
}

// A tile of one operand: `tokens` whole tokens, or some heads of one.
struct RotaryTile {
    int64_t token;
    int64_t head;
    int64_t tokens;
    int64_t heads;
};

// The tile that begins with head `item` of all the T * H heads, where the share of a block ends with head `end`.
DSV4_HOST_DEVICE constexpr RotaryTile rotary_tile(int64_t item, int64_t end, const RotaryOperand& x, int64_t rope_dim) {
    const int64_t capacity = min_of<int64_t>(end - item, kRotaryTileElems / rotary_pitch_elems(rope_dim));
    const int64_t token = item / x.num_heads;
    const int64_t head = item - token * x.num_heads;
    if (head == 0 && capacity >= x.num_heads) {
        return RotaryTile{token, 0, capacity / x.num_heads, x.num_heads};
    }
    return RotaryTile{token, head, 1, min_of<int64_t>(capacity, x.num_heads - head)};
}

// One block for every 16 KB of features, as far as there are cores.
DSV4_HOST_DEVICE constexpr int64_t apply_rotary_blocks(const ApplyRotaryParams& p, int64_t cores) {
    const int64_t head_bytes = p.q.num_heads * element_bytes(p.q.element_type) +
                               p.kv.num_heads * element_bytes(p.kv.element_type);
    return blocks_for(p.num_tokens * p.rope_dim * head_bytes, 16 * 1024, cores);
}

}  // namespace dsv4

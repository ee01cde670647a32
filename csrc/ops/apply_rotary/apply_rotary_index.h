// In-place rotation: parameters and index arithmetic, shared by the CPU loops and the device kernel.
#pragma once

#include "common/integer.h"

// One tensor to rotate, [T, H, head_dim]; all strides in elements. num_heads 0: the tensor was not given.
struct RotaryOperand {
    int64_t num_heads;
    int64_t head_dim;
    int64_t token_stride;
    int64_t head_stride;
};

struct ApplyRotaryParams {
    RotaryOperand q;
    RotaryOperand kv;
    int64_t num_tokens;  // T
    int64_t rope_dim;    // D: the last D features of each head are rotated
    int64_t cos_stride;  // elements between two tokens' rows of cos
    int64_t sin_stride;
    int32_t inverse;   // sin is negated
    int32_t reserved;  // keeps the struct free of padding
};

namespace dsv4 {

// The first rotated feature of a head.
DSV4_HOST_DEVICE constexpr int64_t rotary_offset_elems(int64_t token, int64_t head, const RotaryOperand& x,
                                                       int64_t rope_dim) {
    return token * x.token_stride + head * x.head_stride + x.head_dim - rope_dim;
}

}  // namespace dsv4

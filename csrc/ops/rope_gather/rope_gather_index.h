// RoPE row gather: parameters and index arithmetic, shared by the CPU loops and the device kernel.
#pragma once

#include "common/integer.h"

struct RopeGatherParams {
    int64_t max_pos;            // rows of the cos and sin tables
    int64_t num_positions;      // T: rows of the outputs
    int64_t table_row_elems;    // stride between two table rows
    int32_t rope_dim;           // D: elements of a row
    int32_t position_is_int64;  // positions are int32 otherwise
    int32_t inverse;            // sin is negated
    int32_t reserved;           // keeps the struct free of padding
};

namespace dsv4 {

DSV4_HOST_DEVICE constexpr bool rope_position_valid(int64_t position, const RopeGatherParams& p) {
    return position >= 0 && position < p.max_pos;
}

DSV4_HOST_DEVICE constexpr int64_t rope_table_offset_elems(int64_t position, const RopeGatherParams& p) {
    return position * p.table_row_elems;
}

DSV4_HOST_DEVICE constexpr int64_t rope_output_offset_elems(int64_t row, const RopeGatherParams& p) {
    return row * p.rope_dim;
}

}  // namespace dsv4

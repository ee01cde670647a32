// RoPE row gather: parameters, launch plan and index arithmetic, shared by the CPU loops and the device kernel.
#pragma once

#include "common/element_type.h"
#include "common/launch_plan.h"

struct RopeGatherParams {
    int64_t max_pos;            // rows of the cos and sin tables
    int64_t num_positions;      // T: rows of the outputs
    int64_t table_row_elems;    // stride between two table rows
    int32_t rope_dim;           // D: elements of a row
    int32_t position_is_int64;  // positions are int32 otherwise
    int32_t inverse;            // sin is negated
    int32_t table_type;         // element types, see element_type.h
    int32_t output_type;
    int32_t reserved;  // keeps the struct free of padding
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

// Whether a kernel has to compute; otherwise it only copies.
DSV4_HOST_DEVICE constexpr bool rope_gather_converts(const RopeGatherParams& p) {
    return p.table_type != p.output_type || p.inverse != 0;
}

// Elements from one row of a tile to the next, the same for tables and outputs so that a tile converts as a whole.
DSV4_HOST_DEVICE constexpr int64_t rope_gather_pitch_elems(const RopeGatherParams& p) {
    return round_up<int64_t>(p.rope_dim, kUbBlockBytes / min_of(element_bytes(p.table_type), element_bytes(p.output_type)));
}

// UB for one row of both tables. A tile is double-buffered: positions, table rows, and output rows of another type; one
// float32 tile, which both tables use in turn, lies between two 16-bit types.
DSV4_HOST_DEVICE constexpr int64_t rope_gather_row_bytes(const RopeGatherParams& p) {
    const int64_t pitch = rope_gather_pitch_elems(p);
    const int64_t output = p.table_type != p.output_type ? 4 * pitch * element_bytes(p.output_type) : 0;
    const int64_t between = rope_gather_converts(p) ? pitch * element_bytes(kFloat32) : 0;
    return 2 * 8 + 4 * pitch * element_bytes(p.table_type) + output + between;
}

// Rows of a tile, a multiple of 4 so that every buffer of it starts aligned; 0 when a row is too long for UB.
DSV4_HOST_DEVICE constexpr int64_t rope_gather_tile_rows(const RopeGatherParams& p) {
    return min_of<int64_t>(kUbBudgetBytes / rope_gather_row_bytes(p), kMaxCopyBlocks) / 4 * 4;
}

// Rows at which shares are cut, so that no two blocks write into one 32-byte piece of an output.
DSV4_HOST_DEVICE constexpr int64_t rope_gather_cut_rows(const RopeGatherParams& p) {
    return p.rope_dim * element_bytes(p.output_type) % kUbBlockBytes == 0 ? 1 : kUbBlockBytes / element_bytes(p.output_type);
}

constexpr int64_t kRopePositionNs = 60;

DSV4_HOST_DEVICE constexpr int64_t rope_gather_blocks(const RopeGatherParams& p, int64_t cores) {
    const int64_t row_bytes = 2 * 2 * p.rope_dim * element_bytes(p.output_type);
    return blocks_for_work(p.num_positions * (kRopePositionNs + row_bytes / kBytesPerNs), cores);
}

}  // namespace dsv4

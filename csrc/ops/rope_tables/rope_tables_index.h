// RoPE tables from unit complex numbers: parameters, launch plan and index arithmetic, shared by the CPU loops and the
// device kernel.
#pragma once

#include "common/element_type.h"
#include "common/launch_plan.h"

struct RopeTablesParams {
    int64_t max_pos;          // rows of freqs_cis and of both tables
    int64_t freqs_row_elems;  // stride between two rows of freqs_cis, in complex numbers
    int64_t num_pairs;        // D / 2: complex numbers of a row
    int32_t table_type;       // element type of both tables, see element_type.h
    int32_t reserved;         // keeps the struct free of padding
};

namespace dsv4 {

// The real part, as an element of freqs_cis read as (real, imaginary) floats; the imaginary part is the next element.
DSV4_HOST_DEVICE constexpr int64_t rope_tables_real_offset_elems(int64_t position, int64_t pair,
                                                                 const RopeTablesParams& p) {
    return 2 * (position * p.freqs_row_elems + pair);
}

// The first of the pair's two equal entries in a table [max_pos, D].
DSV4_HOST_DEVICE constexpr int64_t rope_tables_pair_offset_elems(int64_t position, int64_t pair,
                                                                 const RopeTablesParams& p) {
    return 2 * (position * p.num_pairs + pair);
}

// Floats of a tile: 16 KB of freqs_cis, the least that a copy moves at full bandwidth.
constexpr int64_t kRopeTablesTileElems = 4096;

// UB of a tile in float32, the widest: freqs and two tables, each twice, and offsets. 16-bit tables need less although
// they need one more tile, of rounded freqs.
constexpr int64_t kRopeTablesUbBytes = (2 + 4 + 1) * kRopeTablesTileElems * 4;
static_assert(kRopeTablesUbBytes <= kUbBudgetBytes, "a tile does not fit into UB");

// Pairs of a row that a tile holds; a longer row takes several tiles.
DSV4_HOST_DEVICE constexpr int64_t rope_tables_tile_pairs(const RopeTablesParams& p) {
    return min_of<int64_t>(p.num_pairs, kRopeTablesTileElems / 2);
}

// Elements from one row of a tile to the next, the same for freqs (as floats) and tables of any type.
DSV4_HOST_DEVICE constexpr int64_t rope_tables_pitch_elems(const RopeTablesParams& p) {
    return round_up<int64_t>(2 * rope_tables_tile_pairs(p), kUbBlockBytes / 2);
}

// Rows of a tile; several only where whole rows fit.
DSV4_HOST_DEVICE constexpr int64_t rope_tables_tile_rows(const RopeTablesParams& p) {
    return kRopeTablesTileElems / rope_tables_pitch_elems(p);
}

// One block for every 16 KB of output, as far as there are cores.
DSV4_HOST_DEVICE constexpr int64_t rope_tables_blocks(const RopeTablesParams& p, int64_t cores) {
    return blocks_for(4 * p.max_pos * p.num_pairs * element_bytes(p.table_type), 16 * 1024, cores);
}

}  // namespace dsv4

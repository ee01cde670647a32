// RoPE tables from unit complex numbers: parameters and index arithmetic, shared by the CPU loops and the device
// kernel.
#pragma once

#include "common/integer.h"

struct RopeTablesParams {
    int64_t max_pos;          // rows of freqs_cis and of both tables
    int64_t freqs_row_elems;  // stride between two rows of freqs_cis, in complex numbers
    int64_t num_pairs;        // D / 2: complex numbers of a row
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

}  // namespace dsv4

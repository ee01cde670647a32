// Verify step: parameters, and RoPE rows of the completed groups. The rest is shared with other ops (common/).
#pragma once

#include "common/step_launch.h"

struct VerifyStepParams {
    StepRowsParams rows;
    StepMetadataParams metadata;
    StepSlotsParams slots;
    int64_t max_pos;   // rows of the RoPE tables
    int64_t rope_dim;  // D: elements of a row
};

namespace dsv4 {

// A row of a RoPE table or of its output; both are contiguous.
DSV4_HOST_DEVICE constexpr int64_t rope_row_offset_elems(int64_t row, const VerifyStepParams& p) {
    return row * p.rope_dim;
}

// Everything that a step writes.
DSV4_HOST_DEVICE constexpr int64_t verify_step_bytes(const VerifyStepParams& p) {
    return slot_bytes(p.rows, p.slots) + metadata_bytes(p.rows, p.metadata) +
           8 * p.rope_dim * (p.metadata.c4_capacity_groups + p.metadata.c128_capacity_groups);
}

}  // namespace dsv4

// Verify step: parameters, and RoPE rows of the completed groups. The rest is shared with other ops (common/).
#pragma once

#include "common/step_outputs.h"

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

}  // namespace dsv4

// First pass over a step on the CPU: reads and validates every row, so that what follows cannot fail half-way.
#pragma once

#include <c10/util/SmallVector.h>

#include "common/step_outputs.h"
#include "torch/step_tensors.h"

namespace dsv4::cpu {

struct ScannedRow : StepRow {
    int64_t request;      // row of the request tables; 0 for padding, whose own index is never used
    int64_t token_begin;  // cu_seqlens[i]
};

struct ScannedStep {
    c10::SmallVector<ScannedRow, 64> rows;  // 64: the usual decode bucket stays on the stack
    int64_t num_tokens = 0;                 // cu_seqlens[B]
    int64_t c4_groups = 0;                  // groups that the step completes
    int64_t c128_groups = 0;
    int64_t longest = 0;  // greatest final length
    // Greatest RoPE position of a completed group, plus 1. A group of 128 ends together with a group of 4, whose
    // position is the greater one.
    int64_t group_positions_end = 0;
};

// Raises ValueError for the first invalid row and when the rows bring more than p.num_tokens tokens.
ScannedStep scan_step(const char* op, const StepRowsParams& p, const StepInputs& inputs);

}  // namespace dsv4::cpu

// First pass over a step on the CPU: reads and validates every row, so that what follows cannot fail half-way.
#pragma once

#include <c10/util/SmallVector.h>

#include "ops/step/step.h"

namespace dsv4::cpu {

struct ScannedRow : StepRow {
    int64_t request;      // row of the tables; 0 for padding, whose own index is never used
    int64_t token_begin;  // cu_seqlens[i]
};

struct ScannedStep {
    c10::SmallVector<ScannedRow, 64> rows;  // 64: the usual decode bucket stays on the stack
    int64_t num_tokens = 0;                 // cu_seqlens[B]
    int64_t groups[2] = {0, 0};             // of ratios 4 and 128 that the step completes
    int64_t positions_end[2] = {0, 0};      // greatest position of such a group, plus 1
    int64_t tokens_end = 0;                 // the same of a token
};

// Raises ValueError for the first invalid row and when the rows bring more than p.rows.num_tokens tokens. Of `tensors`
// only the inputs of the rows are looked at.
ScannedStep scan_step(const char* op, const StepParams& p, const StepTensors& tensors);

// The same of rows on the host alone, whatever their requests and however long they are.
ScannedStep scan_host_rows(const char* op, const StepRowArguments& rows);

}  // namespace dsv4::cpu

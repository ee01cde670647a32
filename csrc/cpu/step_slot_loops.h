// Second pass over a step on the CPU: slots of its tokens and of the groups that it completes (docs/spec.md, 3.2).
#pragma once

#include <c10/util/Exception.h>

#include <algorithm>

#include "cpu/step_scan.h"
#include "torch/step_slot_tensors.h"

namespace dsv4::cpu {

// Raises ValueError when `needed` groups do not fit.
inline void check_group_capacity(const char* op, const char* name, int64_t capacity_groups, int64_t needed,
                                 int64_t ratio) {
    TORCH_CHECK_VALUE(capacity_groups >= needed, op, ": ", name, " has ", capacity_groups,
                      " entries, expected at least ", needed, " (groups of ", ratio, " that the step completes)");
}

// out: [capacity] int32 slots of the completed groups, dense in batch order, then 0.
template <int64_t ratio>
void write_group_slots(const ScannedStep& step, const at::Tensor& table, int64_t row_elems, const at::Tensor& out) {
    if (!pool_exists(row_elems)) {
        return;
    }
    const int32_t* slots = table.const_data_ptr<int32_t>();
    int32_t* target = out.mutable_data_ptr<int32_t>();
    int64_t written = 0;
    for (const ScannedRow& row : step.rows) {
        const int32_t* source = slots + row.request * row_elems;
        for (int64_t group = first_group(row, ratio); group < last_group(row, ratio); ++group) {
            target[written++] = source[group];
        }
    }
    std::fill(target + written, target + out.size(0), 0);
}

// Raises ValueError when a dense output holds fewer groups than the step completes; touches nothing.
void check_slot_capacity(const char* op, const ScannedStep& step, const StepSlotsParams& p);

// Overwrites every output to its last entry. Expects a step and buffers that have been checked.
void write_step_slots(const ScannedStep& step, const StepSlotsParams& p, const SlotTables& tables,
                      const SlotTensors& out);

}  // namespace dsv4::cpu

// Slot outputs of a step, their checks and their allocation; the same for every op and backend (docs/spec.md, 3.2).
#pragma once

#include "torch/step_tensors.h"

namespace dsv4 {

// Request tables of all six pools: int32 [max_requests, columns], columns 0 when the pool is missing.
struct SlotTables {
    const at::Tensor& full;
    const at::Tensor& swa;
    const at::Tensor& c4;
    const at::Tensor& c128;
    const at::Tensor& c4_state;
    const at::Tensor& c128_state;
};

// int32 slots. Empty for a pool that does not exist.
struct SlotTensors {
    at::Tensor out_full_loc;        // [T]
    at::Tensor out_swa_loc;         // [T]
    at::Tensor out_c4_loc;          // [c4 capacity]
    at::Tensor out_c128_loc;        // [c128 capacity]
    at::Tensor out_c4_state_loc;    // [T]
    at::Tensor out_c128_state_loc;  // [T]
};

// T as the token-aligned buffers tell it; the greatest possible number when no such pool exists.
int64_t tokens_of_slots(const SlotTables& tables, const SlotTensors& out);

StepSlotsParams check_step_slots(const char* op, const StepRowsParams& rows, const at::Tensor& req_pool_indices,
                                 const SlotTables& tables, const SlotTensors& out);

SlotTensors empty_step_slots(const char* op, const at::Tensor& req_pool_indices, const SlotTables& tables,
                             int64_t num_tokens, int64_t c4_groups, int64_t c128_groups);

// The outputs in table order, as an op returns them.
TensorTuple<6> as_results(SlotTensors out);

}  // namespace dsv4

#pragma once

#include "ops/verify_step/verify_step_index.h"
#include "torch/step_slot_tensors.h"

namespace dsv4 {

// cos and sin [max_pos, D] float32 of the compressed layers' base.
struct RopeTables {
    const at::Tensor& cos;
    const at::Tensor& sin;
};

// Rows at positions_c4 and positions_c128, their zero tail included: [capacity, D] float32.
struct GroupRopeTensors {
    at::Tensor c4_cos;
    at::Tensor c4_sin;
    at::Tensor c128_cos;
    at::Tensor c128_sin;
};

// Checks every argument of verify_step.out but the values in tensors.
VerifyStepParams check_verify_step(const StepInputs& inputs, const SlotTables& tables, const RopeTables& rope,
                                   int64_t page_size, int64_t window, const SlotTensors& slots,
                                   const MetadataTensors& metadata, const GroupRopeTensors& rows);

GroupRopeTensors empty_group_rope(const RopeTables& rope, const MetadataTensors& metadata);

}  // namespace dsv4

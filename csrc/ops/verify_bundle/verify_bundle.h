#pragma once

#include "ops/verify_bundle/verify_bundle_index.h"
#include "torch/step_slot_tensors.h"

namespace dsv4 {

// Checks every argument of verify_bundle.out but the values in tensors.
VerifyBundleParams check_verify_bundle(const StepInputs& inputs, const SlotTables& tables, const SlotTensors& out);

}  // namespace dsv4

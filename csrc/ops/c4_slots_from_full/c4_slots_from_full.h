#pragma once

#include <ATen/core/Tensor.h>

#include "ops/c4_slots_from_full/c4_slots_from_full_index.h"

namespace dsv4 {

// Checks every argument of c4_slots_from_full but the values in tensors; touches no data.
C4SlotsFromFullParams check_c4_slots_from_full(const at::Tensor& full_loc, const at::Tensor& c4_loc);

// A new output on the input's device.
at::Tensor empty_c4_slots(const at::Tensor& full_loc, int64_t num_groups);

}  // namespace dsv4

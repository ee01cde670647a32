#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "ops/c4_slots_from_full/c4_slots_from_full_index.h"

namespace dsv4 {

// Checks every argument of c4_slots_from_full but the values in tensors; touches no data.
C4SlotsFromFullParams check_c4_slots_from_full(const at::Tensor& full_loc, const at::Tensor& c4_loc);

// A new output on the input's device.
at::Tensor empty_c4_slots(const at::Tensor& full_loc, int64_t num_groups);

// Registers both forms over a backend's run(params, full_loc, c4_loc).
template <auto run>
void register_c4_slots_from_full(torch::Library& library) {
    library.impl("c4_slots_from_full", [](const at::Tensor& full_loc, int64_t num_groups) {
        at::Tensor c4_loc = empty_c4_slots(full_loc, num_groups);
        run(check_c4_slots_from_full(full_loc, c4_loc), full_loc, c4_loc);
        return c4_loc;
    });
    library.impl("c4_slots_from_full.out", [](const at::Tensor& full_loc, const at::Tensor& c4_loc) {
        run(check_c4_slots_from_full(full_loc, c4_loc), full_loc, c4_loc);
    });
}

}  // namespace dsv4

#include <torch/library.h>

#include <algorithm>

#include "ops/c4_slots_from_full/c4_slots_from_full.h"

namespace dsv4 {
namespace {

void c4_slots_from_full_out_cpu(const at::Tensor& full_loc, const at::Tensor& c4_loc) {
    const C4SlotsFromFullParams p = check_c4_slots_from_full(full_loc, c4_loc);
    const int32_t* full_slots = full_loc.const_data_ptr<int32_t>();  // [num_slots]
    const int64_t groups = std::count_if(full_slots, full_slots + p.num_slots, completes_group);
    TORCH_CHECK_VALUE(groups <= p.capacity_groups, "c4_slots_from_full: c4_loc has ", p.capacity_groups,
                      " entries, expected at least ", groups, " (completed groups)");
    int32_t* c4_slots = c4_loc.mutable_data_ptr<int32_t>();  // [capacity_groups]
    int64_t written = 0;
    for (int64_t i = 0; i < p.num_slots; ++i) {
        if (completes_group(full_slots[i])) {
            c4_slots[written++] = static_cast<int32_t>(c4_slot(full_slots[i]));
        }
    }
    std::fill(c4_slots + written, c4_slots + p.capacity_groups, 0);
}

at::Tensor c4_slots_from_full_cpu(const at::Tensor& full_loc, int64_t num_groups) {
    const at::Tensor c4_loc = empty_c4_slots(full_loc, num_groups);
    c4_slots_from_full_out_cpu(full_loc, c4_loc);
    return c4_loc;
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) {
    m.impl("c4_slots_from_full", &c4_slots_from_full_cpu);
    m.impl("c4_slots_from_full.out", &c4_slots_from_full_out_cpu);
}

}  // namespace dsv4

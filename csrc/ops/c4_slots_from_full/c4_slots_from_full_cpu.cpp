#include <algorithm>

#include "ops/c4_slots_from_full/c4_slots_from_full.h"

namespace dsv4 {
namespace {

void run(const C4SlotsFromFullParams& p, const at::Tensor& full_loc, const at::Tensor& c4_loc) {
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

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_c4_slots_from_full<&run>(m); }

}  // namespace dsv4

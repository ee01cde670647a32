#include <torch/library.h>

#include "ops/c4_slots_from_full/c4_slots_from_full.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_c4_slots_from_full.h"

namespace dsv4 {
namespace {

void c4_slots_from_full_out_npu(const at::Tensor& full_loc, const at::Tensor& c4_loc) {
    const C4SlotsFromFullParams p = check_c4_slots_from_full(full_loc, c4_loc);
    npu::launch("c4_slots_from_full", {full_loc, c4_loc},
                c4_slots_from_full_blocks(p, npu::vector_cores(full_loc)),
                [p = p, full_slots = full_loc.data_ptr(), c4_slots = c4_loc.data_ptr(),
                 errors = npu::error_lanes(full_loc)](uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(c4_slots_from_full)(blocks, stream, full_slots, c4_slots, errors, &p);
                });
}

at::Tensor c4_slots_from_full_npu(const at::Tensor& full_loc, int64_t num_groups) {
    const at::Tensor c4_loc = empty_c4_slots(full_loc, num_groups);
    c4_slots_from_full_out_npu(full_loc, c4_loc);
    return c4_loc;
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) {
    m.impl("c4_slots_from_full", &c4_slots_from_full_npu);
    m.impl("c4_slots_from_full.out", &c4_slots_from_full_out_npu);
}

}  // namespace dsv4

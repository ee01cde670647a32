#include "ops/c4_slots_from_full/c4_slots_from_full.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_c4_slots_from_full.h"

namespace dsv4 {
namespace {

void launch_c4_slots_from_full(const C4SlotsFromFullParams& p, const at::Tensor& full_loc, const at::Tensor& c4_loc) {
    // The kernel says why.
    constexpr int64_t kOneBlock = 1;
    npu::launch_on("c4_slots_from_full", std::array{full_loc, c4_loc}, kOneBlock,
                   [p = p, errors = npu::error_lanes(full_loc)](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(c4_slots_from_full)(blocks, stream, at..., errors, &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_c4_slots_from_full<&launch_c4_slots_from_full>(m); }

}  // namespace dsv4

#include "ops/reserve_extend/reserve_extend.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_reserve_extend.h"

namespace dsv4 {
namespace {

void launch_reserve_extend(const ReserveExtendParams& p, const PageTables& tables, const at::Tensor& free_pages,
                           const at::Tensor& segments, const ReservedSlots& slots) {
    if (p.num_segments == 0) {
        return;
    }
    const std::array memory{tables[kFull],      tables[kSwa], tables[kC4],     tables[kC128],    tables[kC4State],
                            tables[kC128State], free_pages,   segments,        slots[kFull],     slots[kSwa],
                            slots[kC4],         slots[kC128], slots[kC4State], slots[kC128State]};
    npu::launch_on("reserve_extend", memory, reserve_extend_blocks(p, npu::vector_cores(free_pages)),
                   [p = p, errors = npu::error_lanes(free_pages)](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(reserve_extend)(blocks, stream, at..., errors, &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_reserve_extend<&launch_reserve_extend>(m); }

}  // namespace dsv4

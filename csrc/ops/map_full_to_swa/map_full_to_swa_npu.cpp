#include "ops/map_full_to_swa/map_full_to_swa.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_map_full_to_swa.h"

namespace dsv4 {
namespace {

void launch_map_full_to_swa(const MapFullToSwaParams& p, const at::Tensor& full_table, const at::Tensor& swa_table,
                            const at::Tensor& segments, const at::Tensor& full_to_swa) {
    if (p.num_segments == 0) {
        return;
    }
    npu::launch_on("map_full_to_swa", std::array{full_table, swa_table, segments, full_to_swa},
                   map_full_to_swa_blocks(p, npu::vector_cores(full_table)),
                   [p = p, errors = npu::error_lanes(full_table)](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(map_full_to_swa)(blocks, stream, at..., errors, &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_map_full_to_swa<&launch_map_full_to_swa>(m); }

}  // namespace dsv4

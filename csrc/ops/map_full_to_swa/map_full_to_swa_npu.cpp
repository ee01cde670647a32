#include <torch/library.h>

#include "ops/map_full_to_swa/map_full_to_swa.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_map_full_to_swa.h"

namespace dsv4 {
namespace {

void map_full_to_swa_npu(const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& segments,
                         const at::Tensor& full_to_swa, int64_t page_size) {
    const MapFullToSwaParams p = check_map_full_to_swa(full_table, swa_table, segments, full_to_swa, page_size);
    if (p.num_segments == 0) {
        return;
    }
    npu::launch("map_full_to_swa", {full_table, swa_table, segments, full_to_swa},
                map_full_to_swa_blocks(p, npu::vector_cores(full_table)),
                [p = p, full = full_table.data_ptr(), swa = swa_table.data_ptr(), list = segments.data_ptr(),
                 mapping = full_to_swa.data_ptr(),
                 errors = npu::error_lanes(full_table)](uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(map_full_to_swa)(blocks, stream, full, swa, list, mapping, errors, &p);
                });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { m.impl("map_full_to_swa", &map_full_to_swa_npu); }

}  // namespace dsv4

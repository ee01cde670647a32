#include "ops/rope_gather/rope_gather.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_rope_gather.h"

namespace dsv4 {
namespace {

void launch_rope_gather(const RopeGatherParams& p, const RopeGatherTensors& tensors) {
    if (p.num_positions == 0 || p.rope_dim == 0) {
        return;
    }
    TORCH_CHECK_VALUE(rope_gather_tile_rows(p) > 0, "rope_gather: cos has rows of ", p.rope_dim,
                      " elements, expected rows of which four fit into a core's local memory");
    const auto& [cos, sin, positions, cos_out, sin_out] = tensors;
    npu::launch_on("rope_gather", std::array{cos, sin, positions, cos_out, sin_out},
                   rope_gather_blocks(p, npu::vector_cores(cos)),
                   [p = p, errors = npu::error_lanes(cos)](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(rope_gather)(blocks, stream, at..., errors, &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_rope_gather<&launch_rope_gather>(m); }

}  // namespace dsv4

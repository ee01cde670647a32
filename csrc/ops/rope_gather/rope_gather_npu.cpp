#include <torch/library.h>

#include "ops/rope_gather/rope_gather.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_rope_gather.h"

namespace dsv4 {
namespace {

void rope_gather_out_npu(const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& positions, bool inverse,
                         const at::Tensor& cos_out, const at::Tensor& sin_out) {
    const RopeGatherParams p = check_rope_gather(cos, sin, positions, inverse, cos_out, sin_out);
    if (p.num_positions == 0 || p.rope_dim == 0) {
        return;
    }
    TORCH_CHECK_VALUE(rope_gather_tile_rows(p) > 0, "rope_gather: cos has rows of ", p.rope_dim,
                      " elements, expected rows of which four fit into a core's local memory");
    npu::launch("rope_gather", {cos, sin, positions, cos_out, sin_out}, rope_gather_blocks(p, npu::vector_cores(cos)),
                [p = p, cos_rows = cos.data_ptr(), sin_rows = sin.data_ptr(), rows = positions.data_ptr(),
                 cos_to = cos_out.data_ptr(), sin_to = sin_out.data_ptr(),
                 errors = npu::error_lanes(cos)](uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(rope_gather)(blocks, stream, cos_rows, sin_rows, rows, cos_to, sin_to,
                                                            errors, &p);
                });
}

std::tuple<at::Tensor, at::Tensor> rope_gather_npu(const at::Tensor& cos, const at::Tensor& sin,
                                                   const at::Tensor& positions, bool inverse,
                                                   std::optional<at::ScalarType> dtype) {
    auto [cos_out, sin_out] = empty_rope_rows(cos, positions, dtype);
    rope_gather_out_npu(cos, sin, positions, inverse, cos_out, sin_out);
    return {std::move(cos_out), std::move(sin_out)};
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) {
    m.impl("rope_gather", &rope_gather_npu);
    m.impl("rope_gather.out", &rope_gather_out_npu);
}

}  // namespace dsv4

#include <torch/library.h>

#include "ops/rope_tables/rope_tables.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_rope_tables.h"

namespace dsv4 {
namespace {

void rope_tables_out_npu(const at::Tensor& freqs_cis, const at::Tensor& cos_out, const at::Tensor& sin_out) {
    const RopeTablesParams p = check_rope_tables(freqs_cis, cos_out, sin_out);
    if (p.max_pos == 0 || p.num_pairs == 0) {
        return;
    }
    npu::launch("rope_tables", {freqs_cis, cos_out, sin_out}, rope_tables_blocks(p, npu::vector_cores(freqs_cis)),
                [p = p, freqs = freqs_cis.data_ptr(), cos_to = cos_out.data_ptr(), sin_to = sin_out.data_ptr()](
                    uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(rope_tables)(blocks, stream, freqs, cos_to, sin_to, &p);
                });
}

std::tuple<at::Tensor, at::Tensor> rope_tables_npu(const at::Tensor& freqs_cis, at::ScalarType dtype) {
    auto [cos_out, sin_out] = empty_rope_tables(freqs_cis, dtype);
    rope_tables_out_npu(freqs_cis, cos_out, sin_out);
    return {std::move(cos_out), std::move(sin_out)};
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) {
    m.impl("rope_tables", &rope_tables_npu);
    m.impl("rope_tables.out", &rope_tables_out_npu);
}

}  // namespace dsv4

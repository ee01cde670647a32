#include "ops/rope_tables/rope_tables.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_rope_tables.h"

namespace dsv4 {
namespace {

void launch_rope_tables(const RopeTablesParams& p, const at::Tensor& freqs_cis, const at::Tensor& cos_out,
                        const at::Tensor& sin_out) {
    if (p.max_pos == 0 || p.num_pairs == 0) {
        return;
    }
    npu::launch_on("rope_tables", std::array{freqs_cis, cos_out, sin_out},
                   rope_tables_blocks(p, npu::vector_cores(freqs_cis)),
                   [p = p](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(rope_tables)(blocks, stream, at..., &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_rope_tables<&launch_rope_tables>(m); }

}  // namespace dsv4

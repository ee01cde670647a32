#include "ops/release_pages/release_pages.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_release_pages.h"

namespace dsv4 {
namespace {

void launch_release_pages(const ReleasePagesParams& p, const PageTables& tables, const at::Tensor& free_pages,
                          const at::Tensor& segments) {
    if (p.num_segments == 0) {
        return;
    }
    const std::array memory{tables[kFull],    tables[kSwa],       tables[kC4], tables[kC128],
                            tables[kC4State], tables[kC128State], free_pages,  segments};
    npu::launch_on("release_pages", memory, release_pages_blocks(p, npu::vector_cores(free_pages)),
                   [p = p, errors = npu::error_lanes(free_pages)](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(release_pages)(blocks, stream, at..., errors, &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_release_pages<&launch_release_pages>(m); }

}  // namespace dsv4

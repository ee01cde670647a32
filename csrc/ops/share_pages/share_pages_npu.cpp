#include "ops/share_pages/share_pages.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_share_pages.h"

namespace dsv4 {
namespace {

void launch_share_pages(const SharePagesParams& p, const PageTables& tables, const at::Tensor& free_pages,
                        const at::Tensor& segments, const CopiedPages& pages) {
    if (p.num_segments == 0) {
        return;
    }
    const std::array memory{tables[kFull],      tables[kSwa], tables[kC4], tables[kC128], tables[kC4State],
                            tables[kC128State], free_pages,   segments,    pages.source,  pages.destination};
    npu::launch_on("share_pages", memory, share_pages_blocks(p, npu::vector_cores(free_pages)),
                   [p = p, errors = npu::error_lanes(free_pages)](uint32_t blocks, void* stream, auto... at) mutable {
                       return ACLRT_LAUNCH_KERNEL(share_pages)(blocks, stream, at..., errors, &p);
                   });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { register_share_pages<&launch_share_pages>(m); }

}  // namespace dsv4

#include <torch/library.h>

#include "ops/release_pages/release_pages.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_release_pages.h"

namespace dsv4 {
namespace {

void release_pages_npu(const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table,
                       const at::Tensor& c128_table, const at::Tensor& c4_state_table,
                       const at::Tensor& c128_state_table, const at::Tensor& free_pages, const at::Tensor& segments,
                       at::IntArrayRef num_pages, int64_t page_size) {
    const PoolTables tables{{full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    const ReleasePagesParams p = check_release_pages(tables, free_pages, segments, num_pages, page_size);
    if (p.num_segments == 0) {
        return;
    }
    npu::launch("release_pages",
                {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table, free_pages, segments},
                release_pages_blocks(p, npu::vector_cores(full_table)),
                [p = p, table = npu::addresses(tables.tables), rings = free_pages.data_ptr(), list = segments.data_ptr(),
                 errors = npu::error_lanes(full_table)](uint32_t blocks, void* stream) mutable {
                    return ACLRT_LAUNCH_KERNEL(release_pages)(blocks, stream, table[kFull], table[kSwa], table[kC4],
                                                              table[kC128], table[kC4State], table[kC128State], rings,
                                                              list, errors, &p);
                });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { m.impl("release_pages", &release_pages_npu); }

}  // namespace dsv4

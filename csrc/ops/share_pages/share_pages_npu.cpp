#include <torch/library.h>

#include <utility>

#include "ops/share_pages/share_pages.h"
#include "torch/launch.h"

// Names the parameter struct above without declaring it.
#include "aclrtlaunch_share_pages.h"

namespace dsv4 {
namespace {

std::tuple<at::Tensor, at::Tensor> share_pages_npu(
    const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table, const at::Tensor& c128_table,
    const at::Tensor& c4_state_table, const at::Tensor& c128_state_table, const at::Tensor& free_pages,
    const at::Tensor& segments, at::IntArrayRef num_pages, int64_t num_copies, int64_t page_size) {
    const PoolTables tables{{full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
    const SharePagesParams p = check_share_pages(tables, free_pages, segments, num_pages, num_copies, page_size);
    CopiedPages pages = empty_copied_pages(tables, num_copies);
    if (p.num_segments > 0) {
        npu::launch("share_pages",
                    {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table, free_pages, segments,
                     pages.source, pages.destination},
                    share_pages_blocks(p, npu::vector_cores(full_table)),
                    [p = p, table = npu::addresses(tables.tables), rings = free_pages.data_ptr(),
                     list = segments.data_ptr(), source = pages.source.data_ptr(),
                     destination = pages.destination.data_ptr(),
                     errors = npu::error_lanes(full_table)](uint32_t blocks, void* stream) mutable {
                        return ACLRT_LAUNCH_KERNEL(share_pages)(
                            blocks, stream, table[kFull], table[kSwa], table[kC4], table[kC128], table[kC4State],
                            table[kC128State], rings, list, source, destination, errors, &p);
                    });
    }
    return {std::move(pages.source), std::move(pages.destination)};
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, DSV4_DEVICE_KEY, m) { m.impl("share_pages", &share_pages_npu); }

}  // namespace dsv4

#include "ops/release_pages/release_pages.h"

#include <torch/library.h>

#include "torch/free_rings.h"
#include "torch/step_tensors.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "release_pages";

}  // namespace

ReleasePagesParams check_release_pages(const PoolTables& tables, const at::Tensor& free_pages,
                                       const at::Tensor& segments, at::IntArrayRef num_pages, int64_t page_size) {
    check_pool_tables(kOp, tables);
    check_segments(kOp, segments, tables);
    ReleasePagesParams p{};
    check_free_rings(kOp, free_pages, num_pages, tables, p.num_pages, p.ring_begin);
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        p.row_elems[pool] = row_elems(tables[pool]);
        p.columns[pool] = static_cast<int32_t>(tables[pool].size(1));
    }
    p.max_requests = static_cast<int32_t>(tables[kFull].size(0));
    p.num_segments = static_cast<int32_t>(segments.size(0));
    p.page_shift = check_page_size(kOp, page_size);
    return p;
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "release_pages(Tensor(a!) full_table, Tensor(b!) swa_table, Tensor(c!) c4_table, Tensor(d!) c128_table,"
        " Tensor(e!) c4_state_table, Tensor(f!) c128_state_table, Tensor(g!) free_pages, Tensor segments,"
        " int[] num_pages, int page_size) -> ()");
}

}  // namespace dsv4

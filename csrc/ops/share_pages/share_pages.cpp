#include "ops/share_pages/share_pages.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/check.h"
#include "torch/free_rings.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "share_pages";

}  // namespace

SharePagesParams check_share_pages(const PoolTables& tables, const at::Tensor& free_pages, const at::Tensor& segments,
                                   at::IntArrayRef num_pages, int64_t num_copies, int64_t page_size,
                                   int64_t num_units) {
    auto p = check_paged_segments<SharePagesParams>(kOp, tables, free_pages, segments, num_pages, page_size);
    check::at_least(kOp, "num_copies", num_copies, 0);
    TORCH_CHECK_VALUE(num_copies <= segments.size(0), kOp, ": num_copies is ", num_copies, ", expected at most ",
                      segments.size(0), ", the number of segments");
    p.num_copies = static_cast<int32_t>(num_copies);
    p.num_units = check_num_units(kOp, num_units);
    return p;
}

CopiedPages empty_copied_pages(const PoolTables& tables, int64_t num_copies) {
    const at::TensorOptions options = tables[kFull].options().dtype(at::kInt);
    return CopiedPages{at::empty({num_copies}, options), at::empty({num_copies}, options)};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "share_pages(Tensor(a!) full_table, Tensor(b!) swa_table, Tensor(c!) c4_table, Tensor(d!) c128_table,"
        " Tensor(e!) c4_state_table, Tensor(f!) c128_state_table, Tensor free_pages, Tensor segments,"
        " int[] num_pages, int num_copies, int page_size, int num_units=0)"
        " -> (Tensor source_pages, Tensor destination_pages)");
}

}  // namespace dsv4

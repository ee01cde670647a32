#include "ops/release_pages/release_pages.h"

#include <torch/library.h>

#include "torch/free_rings.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "release_pages";

}  // namespace

ReleasePagesParams check_release_pages(const PoolTables& tables, const at::Tensor& free_pages,
                                       const at::Tensor& segments, at::IntArrayRef num_pages, int64_t page_size,
                                       int64_t num_units) {
    auto p = check_paged_segments<ReleasePagesParams>(kOp, tables, free_pages, segments, num_pages, page_size);
    p.num_units = check_num_units(kOp, num_units);
    return p;
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "release_pages(Tensor(a!) full_table, Tensor(b!) swa_table, Tensor(c!) c4_table, Tensor(d!) c128_table,"
        " Tensor(e!) c4_state_table, Tensor(f!) c128_state_table, Tensor(g!) free_pages, Tensor segments,"
        " int[] num_pages, int page_size, int num_units=0) -> ()");
}

}  // namespace dsv4

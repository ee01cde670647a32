#include "ops/share_pages/share_pages.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/check.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "share_pages";

}  // namespace

SharePagesArguments check_share_pages(at::TensorList tables, const at::Tensor& free_pages, const at::Tensor& segments,
                                      at::IntArrayRef num_pages, int64_t num_copies, at::IntArrayRef page_sizes,
                                      int64_t num_items) {
    const PagedArguments paged = check_paged_pools(kOp, tables, page_sizes, free_pages, num_pages);
    const int64_t num_segments = check::segments(kOp, segments, "free_pages", free_pages);
    check::at_least(kOp, "num_copies", num_copies, 0);
    TORCH_CHECK_VALUE(num_copies <= num_segments, kOp, ": num_copies is ", num_copies, ", expected at most ",
                      num_segments, ", the number of segments");
    return SharePagesArguments{{paged.pools, check::num_items(kOp, num_items),
                                static_cast<int32_t>(num_segments), static_cast<int32_t>(num_copies)},
                               paged.tables};
}

CopiedPages empty_copied_pages(int64_t num_copies, const at::Tensor& on) {
    return CopiedPages{at::empty({num_copies}, on.options()), at::empty({num_copies}, on.options())};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "share_pages(Tensor(a!)[] tables, Tensor free_pages, Tensor segments, int[] num_pages, int num_copies,"
        " int[] page_sizes, int num_items=0) -> (Tensor source_pages, Tensor destination_pages)");
}

}  // namespace dsv4

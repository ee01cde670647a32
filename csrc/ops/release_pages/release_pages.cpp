#include "ops/release_pages/release_pages.h"

#include <torch/library.h>

namespace dsv4 {
namespace {

constexpr char kOp[] = "release_pages";

}  // namespace

ReleasePagesArguments check_release_pages(at::TensorList tables, const at::Tensor& free_pages,
                                          const at::Tensor& segments, at::IntArrayRef num_pages,
                                          at::IntArrayRef page_sizes, int64_t num_items) {
    const PagedArguments paged = check_paged_pools(kOp, tables, page_sizes, free_pages, num_pages);
    const int64_t num_segments = check::segments(kOp, segments, "free_pages", free_pages);
    return ReleasePagesArguments{{paged.pools, check::num_items(kOp, num_items), static_cast<int32_t>(num_segments), 0},
                                 paged.tables};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "release_pages(Tensor(a!)[] tables, Tensor(b!) free_pages, Tensor segments, int[] num_pages, int[] page_sizes,"
        " int num_items=0) -> ()");
}

}  // namespace dsv4

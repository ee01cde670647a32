#include "ops/map_full_to_swa/map_full_to_swa.h"

#include <torch/library.h>

#include "torch/check.h"
#include "torch/paged_pools.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "map_full_to_swa";
}  // namespace

MapFullToSwaParams check_map_full_to_swa(const at::Tensor& full_table, const at::Tensor& swa_table,
                                         const at::Tensor& segments, const at::Tensor& full_to_swa,
                                         int64_t page_size, int64_t num_items) {
    check::dim(kOp, "full_to_swa", full_to_swa, 1);
    check::dtype(kOp, "full_to_swa", full_to_swa, {at::kLong});
    check::contiguous(kOp, "full_to_swa", full_to_swa);
    MapFullToSwaParams p{};
    p.full_row_elems = check_page_table(kOp, "full_table", full_table, "full_to_swa", full_to_swa);
    p.swa_row_elems = check_page_table(kOp, "swa_table", swa_table, "full_to_swa", full_to_swa);
    p.full_columns = static_cast<int32_t>(full_table.size(1));
    p.swa_columns = static_cast<int32_t>(swa_table.size(1));
    p.page_shift = check::page_shift(kOp, "full", page_size);
    TORCH_CHECK_VALUE(swa_table.size(0) == full_table.size(0), kOp, ": swa_table has ", swa_table.size(0),
                      " rows, expected ", full_table.size(0), " like full_table");
    const int64_t num_segments = check::segments(kOp, segments, "full_to_swa", full_to_swa);
    p.num_items = check::num_items(kOp, num_items);
    p.num_slots = full_to_swa.size(0);
    p.max_requests = static_cast<int32_t>(full_table.size(0));
    p.num_segments = static_cast<int32_t>(num_segments);
    return p;
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "map_full_to_swa(Tensor full_table, Tensor swa_table, Tensor segments, Tensor(a!) full_to_swa,"
        " int page_size, int num_items=0) -> ()");
}

}  // namespace dsv4

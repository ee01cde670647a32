#include "ops/map_full_to_swa/map_full_to_swa.h"

#include <torch/library.h>

#include "torch/check.h"
#include "torch/free_rings.h"
#include "torch/step_tensors.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "map_full_to_swa";

void check_table(int32_t pool, const at::Tensor& table, const at::Tensor& full_table) {
    const char* name = kTableNames[pool];
    check::dim(kOp, name, table, 2);
    check::dtype(kOp, name, table, {at::kInt});
    check::same_device(kOp, name, table, kTableNames[kFull], full_table);
    check::shape(kOp, name, table, full_table.sizes());
    check::contiguous_rows(kOp, name, table);
}

}  // namespace

MapFullToSwaParams check_map_full_to_swa(const at::Tensor& full_table, const at::Tensor& swa_table,
                                         const at::Tensor& segments, const at::Tensor& full_to_swa, int64_t page_size,
                                         int64_t num_units) {
    check_table(kFull, full_table, full_table);
    check_table(kSwa, swa_table, full_table);
    check_segments(kOp, segments, full_table);
    check::dim(kOp, "full_to_swa", full_to_swa, 1);
    check::dtype(kOp, "full_to_swa", full_to_swa, {at::kLong});
    check::same_device(kOp, "full_to_swa", full_to_swa, kTableNames[kFull], full_table);
    check::contiguous(kOp, "full_to_swa", full_to_swa);
    MapFullToSwaParams p{};
    p.full_row_elems = row_elems(full_table);
    p.swa_row_elems = row_elems(swa_table);
    p.num_slots = full_to_swa.size(0);
    p.columns = static_cast<int32_t>(full_table.size(1));
    p.max_requests = static_cast<int32_t>(full_table.size(0));
    p.num_segments = static_cast<int32_t>(segments.size(0));
    p.page_shift = check_page_size(kOp, page_size);
    p.num_units = check_num_units(kOp, num_units);
    return p;
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "map_full_to_swa(Tensor full_table, Tensor swa_table, Tensor segments, Tensor(a!) full_to_swa, int page_size,"
        " int num_units=0) -> ()");
}

}  // namespace dsv4

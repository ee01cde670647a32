#include "ops/c4_slots_from_full/c4_slots_from_full.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/check.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "c4_slots_from_full";

}  // namespace

C4SlotsFromFullParams check_c4_slots_from_full(const at::Tensor& full_loc, const at::Tensor& c4_loc) {
    check::dim(kOp, "full_loc", full_loc, 1);
    check::dtype(kOp, "full_loc", full_loc, {at::kInt});
    check::contiguous(kOp, "full_loc", full_loc);
    check::dim(kOp, "c4_loc", c4_loc, 1);
    check::dtype(kOp, "c4_loc", c4_loc, {at::kInt});
    check::same_device(kOp, "c4_loc", c4_loc, "full_loc", full_loc);
    check::contiguous(kOp, "c4_loc", c4_loc);
    return C4SlotsFromFullParams{full_loc.size(0), c4_loc.size(0)};
}

at::Tensor empty_c4_slots(const at::Tensor& full_loc, int64_t num_groups) {
    check::at_least(kOp, "num_groups", num_groups, 0);
    return at::empty({num_groups}, full_loc.options().dtype(at::kInt));
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def("c4_slots_from_full(Tensor full_loc, SymInt num_groups) -> Tensor");
    m.def("c4_slots_from_full.out(Tensor full_loc, *, Tensor(a!) c4_loc) -> ()");
}

}  // namespace dsv4

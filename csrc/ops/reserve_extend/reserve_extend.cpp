#include "ops/reserve_extend/reserve_extend.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/check.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "reserve_extend";

}  // namespace

ReserveExtendArguments check_reserve_extend(at::TensorList tables, const at::Tensor& free_pages,
                                            const at::Tensor& segments, at::IntArrayRef num_pages,
                                            at::IntArrayRef num_slots, at::IntArrayRef page_sizes) {
    const PagedArguments paged = check_paged_pools(kOp, tables, page_sizes, free_pages, num_pages);
    const int64_t num_segments = check::segments(kOp, segments, "free_pages", free_pages);
    check::pool_list(kOp, "num_slots", num_slots);
    ReserveExtendArguments result{{}, paged.tables};
    result.params.pools = paged.pools;
    result.params.num_segments = static_cast<int32_t>(num_segments);
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        result.params.num_slots[pool] = static_cast<int32_t>(num_slots[pool]);
    }
    return result;
}

ReservedSlots empty_slots(at::IntArrayRef num_slots, const at::Tensor& on) {
    ReservedSlots slots;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        slots[pool] = at::empty({num_slots[pool]}, on.options());
    }
    return slots;
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "reserve_extend(Tensor(a!)[] tables, Tensor free_pages, Tensor segments, int[] num_pages, int[] num_slots,"
        " int[] page_sizes) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
}

}  // namespace dsv4

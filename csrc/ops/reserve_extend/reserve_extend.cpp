#include "ops/reserve_extend/reserve_extend.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/free_rings.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "reserve_extend";

}  // namespace

ReserveExtendParams check_reserve_extend(const PoolTables& tables, const at::Tensor& free_pages,
                                         const at::Tensor& segments, at::IntArrayRef num_pages,
                                         at::IntArrayRef num_slots, int64_t page_size) {
    auto p = check_paged_segments<ReserveExtendParams>(kOp, tables, free_pages, segments, num_pages, page_size);
    check::pool_list(kOp, "num_slots", num_slots);
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        p.num_slots[pool] = static_cast<int32_t>(num_slots[pool]);
    }
    return p;
}

PoolSlots empty_slots(const PoolTables& tables, at::IntArrayRef num_slots) {
    check::pool_list(kOp, "num_slots", num_slots);
    PoolSlots slots;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        slots[pool] = at::empty({num_slots[pool]}, tables[kFull].options().dtype(at::kInt));
    }
    return slots;
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "reserve_extend(Tensor(a!) full_table, Tensor(b!) swa_table, Tensor(c!) c4_table, Tensor(d!) c128_table,"
        " Tensor(e!) c4_state_table, Tensor(f!) c128_state_table, Tensor free_pages, Tensor segments,"
        " int[] num_pages, int[] num_slots, int page_size)"
        " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
}

}  // namespace dsv4

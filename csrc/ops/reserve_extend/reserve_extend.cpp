#include "ops/reserve_extend/reserve_extend.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "torch/check.h"
#include "torch/free_rings.h"
#include "torch/step_tensors.h"

namespace dsv4 {
namespace {

constexpr char kOp[] = "reserve_extend";

}  // namespace

ReserveExtendParams check_reserve_extend(const PoolTables& tables, const at::Tensor& free_pages,
                                         const at::Tensor& segments, at::IntArrayRef num_pages,
                                         at::IntArrayRef num_slots, int64_t page_size) {
    check_pool_tables(kOp, tables);
    check_segments(kOp, segments, tables);
    ReserveExtendParams p{};
    check_free_rings(kOp, free_pages, num_pages, tables, p.num_pages, p.ring_begin);
    check::pool_list(kOp, "num_slots", num_slots);
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        p.row_elems[pool] = row_elems(tables[pool]);
        p.columns[pool] = static_cast<int32_t>(tables[pool].size(1));
        p.num_slots[pool] = static_cast<int32_t>(num_slots[pool]);
    }
    p.max_requests = static_cast<int32_t>(tables[kFull].size(0));
    p.num_segments = static_cast<int32_t>(segments.size(0));
    p.page_shift = check_page_size(kOp, page_size);
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

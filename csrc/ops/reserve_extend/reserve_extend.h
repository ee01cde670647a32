#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>

#include "ops/reserve_extend/reserve_extend_index.h"
#include "torch/pool_tables.h"
#include "torch/tensor_tuple.h"

namespace dsv4 {

// int32 slots in table order, [num_slots[pool]] each.
using PoolSlots = std::array<at::Tensor, kNumPools>;

// Checks every argument of reserve_extend but the values in tensors; touches no data.
ReserveExtendParams check_reserve_extend(const PoolTables& tables, const at::Tensor& free_pages,
                                         const at::Tensor& segments, at::IntArrayRef num_pages,
                                         at::IntArrayRef num_slots, int64_t page_size);

// New outputs on the tables' device.
PoolSlots empty_slots(const PoolTables& tables, at::IntArrayRef num_slots);

// Registers the op over a backend's run(params, tables, free_pages, segments, slots).
template <auto run>
void register_reserve_extend(torch::Library& library) {
    library.impl("reserve_extend",
                 [](const at::Tensor& full_table, const at::Tensor& swa_table, const at::Tensor& c4_table,
                    const at::Tensor& c128_table, const at::Tensor& c4_state_table, const at::Tensor& c128_state_table,
                    const at::Tensor& free_pages, const at::Tensor& segments, at::IntArrayRef num_pages,
                    at::IntArrayRef num_slots, int64_t page_size) -> TensorTuple<kNumPools> {
                     const PoolTables tables{
                         {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
                     const ReserveExtendParams p =
                         check_reserve_extend(tables, free_pages, segments, num_pages, num_slots, page_size);
                     PoolSlots slots = empty_slots(tables, num_slots);
                     run(p, tables, free_pages, segments, slots);
                     return std::tuple_cat(std::move(slots));
                 });
}

}  // namespace dsv4

#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "ops/reserve_extend/reserve_extend_index.h"
#include "torch/pool_tables.h"

namespace dsv4 {

// int32 slots in table order, [num_slots[pool]] each.
using PoolSlots = std::array<at::Tensor, kNumPools>;

// Checks every argument of reserve_extend but the values in tensors; touches no data.
ReserveExtendParams check_reserve_extend(const PoolTables& tables, const at::Tensor& free_pages,
                                         const at::Tensor& segments, at::IntArrayRef num_pages,
                                         at::IntArrayRef num_slots, int64_t page_size);

// New outputs on the tables' device.
PoolSlots empty_slots(const PoolTables& tables, at::IntArrayRef num_slots);

}  // namespace dsv4

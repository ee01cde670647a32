// Work lists and free pages as the allocation ops take them, and their checks.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch/pool_tables.h"

namespace dsv4 {

namespace check {

// Six counts in table order.
void pool_list(const char* op, const char* name, at::IntArrayRef counts);

}  // namespace check

// segments: int32 [S, 8].
void check_segments(const char* op, const at::Tensor& segments, const PoolTables& tables);

// free_pages: int32, the rings of all pools one after another, num_pages[pool] entries each. Fills the last two
// arguments with the length of each ring and where it starts.
void check_free_rings(const char* op, const at::Tensor& free_pages, at::IntArrayRef num_pages, const PoolTables& tables,
                      int32_t (&ring_pages)[kNumPools], int32_t (&ring_begin)[kNumPools]);

}  // namespace dsv4

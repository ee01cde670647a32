#pragma once

#include <ATen/core/Tensor.h>

#include "ops/release_pages/release_pages_index.h"
#include "torch/pool_tables.h"

namespace dsv4 {

// Checks every argument of release_pages but the values in tensors; touches no data.
ReleasePagesParams check_release_pages(const PoolTables& tables, const at::Tensor& free_pages,
                                       const at::Tensor& segments, at::IntArrayRef num_pages, int64_t page_size);

}  // namespace dsv4

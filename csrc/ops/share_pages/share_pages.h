#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "ops/share_pages/share_pages_index.h"
#include "torch/pool_tables.h"

namespace dsv4 {

// int32 [num_copies] each: pages to copy from, and to.
struct CopiedPages {
    at::Tensor source;
    at::Tensor destination;
};

// Checks every argument of share_pages but the values in tensors; touches no data.
SharePagesParams check_share_pages(const PoolTables& tables, const at::Tensor& free_pages, const at::Tensor& segments,
                                   at::IntArrayRef num_pages, int64_t num_copies, int64_t page_size);

// New outputs on the tables' device.
CopiedPages empty_copied_pages(const PoolTables& tables, int64_t num_copies);

}  // namespace dsv4

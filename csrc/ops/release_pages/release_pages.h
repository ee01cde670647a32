#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "ops/release_pages/release_pages_index.h"
#include "torch/pool_tables.h"

namespace dsv4 {

// Checks every argument of release_pages but the values in tensors; touches no data.
ReleasePagesParams check_release_pages(const PoolTables& tables, const at::Tensor& free_pages,
                                       const at::Tensor& segments, at::IntArrayRef num_pages, int64_t page_size,
                                       int64_t num_units);

// Registers the op over a backend's run(params, tables, free_pages, segments).
template <auto run>
void register_release_pages(torch::Library& library) {
    library.impl("release_pages", [](const at::Tensor& full_table, const at::Tensor& swa_table,
                                     const at::Tensor& c4_table, const at::Tensor& c128_table,
                                     const at::Tensor& c4_state_table, const at::Tensor& c128_state_table,
                                     const at::Tensor& free_pages, const at::Tensor& segments,
                                     at::IntArrayRef num_pages, int64_t page_size, int64_t num_units) {
        const PoolTables tables{{full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
        run(check_release_pages(tables, free_pages, segments, num_pages, page_size, num_units), tables, free_pages,
            segments);
    });
}

}  // namespace dsv4

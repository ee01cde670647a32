#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <tuple>
#include <utility>

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
                                   at::IntArrayRef num_pages, int64_t num_copies, int64_t page_size,
                                   int64_t num_units);

// New outputs on the tables' device.
CopiedPages empty_copied_pages(const PoolTables& tables, int64_t num_copies);

// Registers the op over a backend's run(params, tables, free_pages, segments, copied pages).
template <auto run>
void register_share_pages(torch::Library& library) {
    library.impl("share_pages", [](const at::Tensor& full_table, const at::Tensor& swa_table,
                                   const at::Tensor& c4_table, const at::Tensor& c128_table,
                                   const at::Tensor& c4_state_table, const at::Tensor& c128_state_table,
                                   const at::Tensor& free_pages, const at::Tensor& segments, at::IntArrayRef num_pages,
                                   int64_t num_copies, int64_t page_size, int64_t num_units) {
        const PoolTables tables{{full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table}};
        const SharePagesParams p =
            check_share_pages(tables, free_pages, segments, num_pages, num_copies, page_size, num_units);
        CopiedPages pages = empty_copied_pages(tables, num_copies);
        run(p, tables, free_pages, segments, pages);
        return std::tuple{std::move(pages.source), std::move(pages.destination)};
    });
}

}  // namespace dsv4

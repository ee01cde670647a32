#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <tuple>
#include <utility>

#include "ops/share_pages/share_pages_index.h"
#include "torch/paged_pools.h"

namespace dsv4 {

// int32 [num_copies] each: pages to copy from, and to.
struct CopiedPages {
    at::Tensor source;
    at::Tensor destination;
};

struct SharePagesArguments {
    SharePagesParams params;
    PageTables tables;
};

// Checks every argument of share_pages but the values in tensors; touches no data.
SharePagesArguments check_share_pages(at::TensorList tables, const at::Tensor& free_pages, const at::Tensor& segments,
                                      at::IntArrayRef num_pages, int64_t num_copies, at::IntArrayRef page_sizes,
                                      int64_t num_items);

// New outputs on the device of `on`.
CopiedPages empty_copied_pages(int64_t num_copies, const at::Tensor& on);

// Registers the op over a backend's run(params, tables, free_pages, segments, copied pages).
template <auto run>
void register_share_pages(torch::Library& library) {
    library.impl("share_pages", [](at::TensorList tables, const at::Tensor& free_pages, const at::Tensor& segments,
                                   at::IntArrayRef num_pages, int64_t num_copies, at::IntArrayRef page_sizes,
                                   int64_t num_items) {
        const SharePagesArguments arguments =
            check_share_pages(tables, free_pages, segments, num_pages, num_copies, page_sizes, num_items);
        CopiedPages pages = empty_copied_pages(num_copies, free_pages);
        run(arguments.params, arguments.tables, free_pages, segments, pages);
        return std::tuple{std::move(pages.source), std::move(pages.destination)};
    });
}

}  // namespace dsv4

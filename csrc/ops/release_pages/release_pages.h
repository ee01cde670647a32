#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "ops/release_pages/release_pages_index.h"
#include "torch/paged_pools.h"

namespace dsv4 {

struct ReleasePagesArguments {
    ReleasePagesParams params;
    PageTables tables;
};

// Checks every argument of release_pages but the values in tensors; touches no data.
ReleasePagesArguments check_release_pages(at::TensorList tables, const at::Tensor& free_pages,
                                          const at::Tensor& segments, at::IntArrayRef num_pages,
                                          at::IntArrayRef page_sizes, int64_t num_items);

// Registers the op over a backend's run(params, tables, free_pages, segments).
template <auto run>
void register_release_pages(torch::Library& library) {
    library.impl("release_pages", [](at::TensorList tables, const at::Tensor& free_pages, const at::Tensor& segments,
                                     at::IntArrayRef num_pages, at::IntArrayRef page_sizes, int64_t num_items) {
        const ReleasePagesArguments arguments =
            check_release_pages(tables, free_pages, segments, num_pages, page_sizes, num_items);
        run(arguments.params, arguments.tables, free_pages, segments);
    });
}

}  // namespace dsv4

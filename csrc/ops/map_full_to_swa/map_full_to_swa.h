#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "ops/map_full_to_swa/map_full_to_swa_index.h"

namespace dsv4 {

// Checks every argument of map_full_to_swa but the values in tensors; touches no data.
MapFullToSwaParams check_map_full_to_swa(const at::Tensor& full_table, const at::Tensor& swa_table,
                                         const at::Tensor& segments, const at::Tensor& full_to_swa,
                                         int64_t page_size, int64_t num_items);

// Registers the op over a backend's run(params, full_table, swa_table, segments, full_to_swa).
template <auto run>
void register_map_full_to_swa(torch::Library& library) {
    library.impl("map_full_to_swa", [](const at::Tensor& full_table, const at::Tensor& swa_table,
                                       const at::Tensor& segments, const at::Tensor& full_to_swa,
                                       int64_t page_size, int64_t num_items) {
        run(check_map_full_to_swa(full_table, swa_table, segments, full_to_swa, page_size, num_items), full_table,
            swa_table, segments, full_to_swa);
    });
}

}  // namespace dsv4

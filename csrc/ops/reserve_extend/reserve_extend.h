#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "ops/reserve_extend/reserve_extend_index.h"
#include "torch/paged_pools.h"

namespace dsv4 {

// int32 slots in table order, [num_slots[pool]] each.
using ReservedSlots = std::array<at::Tensor, kNumPools>;

struct ReserveExtendArguments {
    ReserveExtendParams params;
    PageTables tables;
};

// Checks every argument of reserve_extend but the values in tensors; touches no data.
ReserveExtendArguments check_reserve_extend(at::TensorList tables, const at::Tensor& free_pages,
                                            const at::Tensor& segments, at::IntArrayRef num_pages,
                                            at::IntArrayRef num_slots, at::IntArrayRef page_sizes);

// New outputs on the device of `on`.
ReservedSlots empty_slots(at::IntArrayRef num_slots, const at::Tensor& on);

// Registers the op over a backend's run(params, tables, free_pages, segments, slots).
template <auto run>
void register_reserve_extend(torch::Library& library) {
    library.impl("reserve_extend", [](at::TensorList tables, const at::Tensor& free_pages, const at::Tensor& segments,
                                      at::IntArrayRef num_pages, at::IntArrayRef num_slots,
                                      at::IntArrayRef page_sizes) {
        const ReserveExtendArguments arguments =
            check_reserve_extend(tables, free_pages, segments, num_pages, num_slots, page_sizes);
        const ReservedSlots slots = empty_slots(num_slots, free_pages);
        run(arguments.params, arguments.tables, free_pages, segments, slots);
        return std::tuple_cat(slots);
    });
}

}  // namespace dsv4

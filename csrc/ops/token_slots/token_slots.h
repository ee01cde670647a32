#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <vector>

#include "ops/token_slots/token_slots_index.h"

namespace dsv4 {

constexpr char kTokenSlotsOp[] = "token_slots";

struct TokenSlotsTensors {
    at::Tensor cu_seqlens;                // [>= num_reqs + 1] int32 or int64
    at::Tensor seq_lens;                  // [>= num_reqs] int32 or int64
    std::vector<at::Tensor> tables;       // [>= num_reqs, W] int32 or int64 each
    std::vector<at::Tensor> first_pages;  // by table: [>= num_reqs] int32 or int64, or undefined
    std::vector<at::Tensor> slots;        // [T] int64 each
};

// Arguments of the op as the dispatcher hands them over.
struct TokenSlotsArguments {
    const at::Tensor& cu_seqlens;
    const at::Tensor& seq_lens;
    at::TensorList page_tables;
    at::TensorList first_pages;
    at::IntArrayRef first_pages_of;
    at::IntArrayRef page_sizes;
    at::IntArrayRef ratios;
    at::IntArrayRef lowest_pages;
    int64_t num_reqs;
    at::TensorList slots;
};

// Checks every argument but the values in tensors, and keeps the tensors.
TokenSlotsParams check_token_slots(const TokenSlotsArguments& arguments, TokenSlotsTensors& tensors);

// Registers the op over a backend's run(params, tensors).
template <auto run>
void register_token_slots(torch::Library& library) {
    library.impl("token_slots", [](const at::Tensor& cu_seqlens, const at::Tensor& seq_lens, at::TensorList page_tables,
                                   at::TensorList first_pages, at::IntArrayRef first_pages_of,
                                   at::IntArrayRef page_sizes, at::IntArrayRef ratios, at::IntArrayRef lowest_pages,
                                   int64_t num_reqs, at::TensorList slots) {
        TokenSlotsTensors tensors;
        const TokenSlotsParams p = check_token_slots({cu_seqlens, seq_lens, page_tables, first_pages, first_pages_of,
                                                      page_sizes, ratios, lowest_pages, num_reqs, slots},
                                                     tensors);
        run(p, tensors);
    });
}

}  // namespace dsv4

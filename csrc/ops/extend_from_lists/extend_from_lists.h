#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "ops/extend_from_lists/extend_from_lists_index.h"

namespace dsv4 {

inline constexpr char kExtendOp[] = "extend_from_lists";

// Tensors of a call.
struct ExtendTensors {
    // Rows, [B] int32 or int64 each.
    at::Tensor req_pool_indices;
    std::optional<at::Tensor> prefix_lens;  // none: seq_lens - 1
    at::Tensor seq_lens;
    at::Tensor last_loc;
    // Free pages, int64.
    at::Tensor full_pages;
    at::Tensor swa_pages;
    at::Tensor c128_pages;
    // Written.
    at::Tensor full_to_swa;  // int64 [num_slots]
    at::Tensor c128_table;   // int32 [max_requests, columns], rows table_row_elems apart
    at::Tensor c128_owners;  // int32 [num_owners]
};

// New outputs.
struct ExtendedSlots {
    at::Tensor full;           // int32 [num_tokens]
    at::Tensor swa;            // int64 [num_tokens]
    at::Tensor c4;             // int32 [num_c4]
    at::Tensor c128;           // int32 [num_c128]
    at::Tensor c128_replaced;  // int32 [num_replaced]
};

// Checks every argument of extend_from_lists but the values in tensors; touches no data.
ExtendFromListsParams check_extend_from_lists(const ExtendTensors& tensors, int64_t num_tokens, int64_t num_c4,
                                              int64_t num_c128, int64_t num_c128_pages, int64_t page_size,
                                              int64_t c128_page_size, std::optional<int64_t> swa_tail);

// Checks the arguments of extend_from_lists.needs likewise: host lengths, page sizes and the tail.
ExtendFromListsParams check_extend_needs(const std::optional<at::Tensor>& prefix_lens, const at::Tensor& seq_lens,
                                         int64_t page_size, int64_t c128_page_size, std::optional<int64_t> swa_tail);

struct ExtendNeeds {
    ExtendCounts total;                // of all rows
    std::vector<int64_t> new_columns;  // [N, 3]: row of the call, begin, end
};

// What host lengths bring and take, and all checks of them.
ExtendNeeds count_extend(const std::optional<at::Tensor>& prefix_lens, const at::Tensor& seq_lens, int64_t page_size,
                         int64_t c128_page_size, std::optional<int64_t> swa_tail);

ExtendedSlots empty_extended_slots(const ExtendFromListsParams& p, const at::Tensor& on);

// Registers the op over a backend's run(params, tensors, slots).
template <auto run>
void register_extend_from_lists(torch::Library& library) {
    library.impl(
        "extend_from_lists",
        [](const at::Tensor& req_pool_indices, const std::optional<at::Tensor>& prefix_lens, const at::Tensor& seq_lens,
           const at::Tensor& last_loc, const at::Tensor& full_pages, const at::Tensor& swa_pages,
           const at::Tensor& c128_pages, const at::Tensor& full_to_swa, const at::Tensor& c128_table,
           const at::Tensor& c128_owners, int64_t num_tokens, int64_t num_c4, int64_t num_c128, int64_t num_c128_pages,
           int64_t page_size, int64_t c128_page_size, std::optional<int64_t> swa_tail) {
            const ExtendTensors tensors{req_pool_indices, prefix_lens, seq_lens,    last_loc,   full_pages,
                                        swa_pages,        c128_pages,  full_to_swa, c128_table, c128_owners};
            const ExtendFromListsParams p = check_extend_from_lists(
                tensors, num_tokens, num_c4, num_c128, num_c128_pages, page_size, c128_page_size, swa_tail);
            const ExtendedSlots slots = empty_extended_slots(p, full_to_swa);
            run(p, tensors, slots);
            return std::tuple(slots.full, slots.swa, slots.c4, slots.c128, slots.c128_replaced);
        });
}

}  // namespace dsv4

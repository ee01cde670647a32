// Work lists of the allocation ops on the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "common/page_segments.h"
#include "torch/pool_addresses.h"

namespace dsv4::cpu {

// Calls check(segment, index) for every segment of the list before carry_out(segment) for the first, so that a bad list
// changes nothing. segments: int32 [S, 8].
template <typename Segment, typename Check, typename CarryOut>
void carry_out_segments(const char* op, const at::Tensor& segments, const Check& check, const CarryOut& carry_out) {
    const auto* list = reinterpret_cast<const Segment*>(segments.const_data_ptr<int32_t>());
    const int64_t num_segments = segments.size(0);
    int64_t items_before = 0;
    for (int64_t i = 0; i < num_segments; ++i) {
        TORCH_CHECK_VALUE(list[i].items_before == items_before, op, ": segments[", i, "] says that ",
                          list[i].items_before, " come before it, expected ", items_before);
        items_before += list[i].end - list[i].begin;
        check(list[i], i);
    }
    for (int64_t i = 0; i < num_segments; ++i) {
        carry_out(list[i]);
    }
}

// Raises ValueError unless a request has each of the pages [begin, end). table: [max_requests, row_elems] of the pool.
inline void check_owned_pages(const char* op, int32_t pool, int32_t request, int64_t begin, int64_t end,
                              const int32_t* table, const PagedPools& p) {
    for (int64_t page = begin; page < end; ++page) {
        const int32_t entry = table[page_entry_elems(pool, request, page, p)];
        TORCH_CHECK_VALUE(entry > 0, op, ": page ", page, " of request ", request, " in pool ", kPoolNames[pool],
                          " is ", entry, ", expected a page that the request owns (did something else write it?)");
    }
}

}  // namespace dsv4::cpu

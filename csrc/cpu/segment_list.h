// Work lists of the allocation ops on the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "common/page_segments.h"
#include "torch/pool_addresses.h"

namespace dsv4::cpu {

// Raises ValueError unless a device's blocks, each with its parts, would carry out every item once.
template <typename Segment>
void check_parts(const char* op, const Segment* list, int64_t num_segments, int64_t items) {
    const auto* parts = reinterpret_cast<const ListPart*>(list + num_segments);
    int64_t last = 0;
    for (int64_t part = 0; part < kListParts; ++part) {
        const ListPart& p = parts[part];
        const bool in_list = p.segment >= 0 && p.segment < num_segments;
        const int64_t before = in_list ? list[p.segment].items_before : 0;
        const bool in_segment = in_list && p.item >= before && p.item < before + list[p.segment].end - list[p.segment].begin;
        TORCH_CHECK_VALUE(in_segment && p.item >= last && (part != 0 || p.item == 0), op, ": part ", part,
                          " of segments begins at item ", p.item, " in segment ", p.segment,
                          ", expected an item of that segment, none before ", last);
        last = p.item;
    }
    const ListPart& end = parts[kListParts];
    TORCH_CHECK_VALUE(end.segment == num_segments && end.item == items, op, ": the parts of segments end at item ",
                      end.item, " and segment ", end.segment, ", expected ", items, " and ", num_segments);
}

// Calls check(segment, index) for every segment of the list before carry_out(segment) for the first, so that a bad list
// changes nothing. segments: int32 [S + kPartRows, 8], or [0, 8].
template <typename Segment, typename Check, typename CarryOut>
void carry_out_segments(const char* op, const at::Tensor& segments, const Check& check, const CarryOut& carry_out) {
    const auto* list = reinterpret_cast<const Segment*>(segments.const_data_ptr<int32_t>());
    const int64_t num_segments = segments.size(0) == 0 ? 0 : segments.size(0) - kPartRows;
    int64_t items_before = 0;
    for (int64_t i = 0; i < num_segments; ++i) {
        TORCH_CHECK_VALUE(list[i].items_before == items_before, op, ": segments[", i, "] says that ",
                          list[i].items_before, " come before it, expected ", items_before);
        items_before += list[i].end - list[i].begin;
        check(list[i], i);
    }
    if (num_segments > 0) {
        check_parts(op, list, num_segments, items_before);
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

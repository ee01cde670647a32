// Work lists and free pages as the allocation ops take them, and their checks.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch/pool_tables.h"
#include "torch/step_tensors.h"

namespace dsv4 {

namespace check {

// Six counts in table order.
void pool_list(const char* op, const char* name, at::IntArrayRef counts);

}  // namespace check

// segments: int32 [S, 8].
void check_segments(const char* op, const at::Tensor& segments, const at::Tensor& full_table);

// Units of all segments, by which a device chooses how many cores share them; 0: the caller does not know.
int64_t check_num_units(const char* op, int64_t num_units);

// free_pages: int32, the rings of all pools one after another, num_pages[pool] entries each. Fills the last two
// arguments with the length of each ring and where it starts.
void check_free_rings(const char* op, const at::Tensor& free_pages, at::IntArrayRef num_pages, const PoolTables& tables,
                      int32_t (&ring_pages)[kNumPools], int32_t (&ring_begin)[kNumPools]);

// Checks what the ops that move pages of all pools have in common, and fills in the parameters that say it.
template <typename Params>
Params check_paged_segments(const char* op, const PoolTables& tables, const at::Tensor& free_pages,
                            const at::Tensor& segments, at::IntArrayRef num_pages, int64_t page_size) {
    check_pool_tables(op, tables);
    check_segments(op, segments, tables[kFull]);
    Params p{};
    check_free_rings(op, free_pages, num_pages, tables, p.num_pages, p.ring_begin);
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        p.row_elems[pool] = row_elems(tables[pool]);
        p.columns[pool] = static_cast<int32_t>(tables[pool].size(1));
    }
    p.max_requests = static_cast<int32_t>(tables[kFull].size(0));
    p.num_segments = static_cast<int32_t>(segments.size(0));
    p.page_shift = check_page_size(op, page_size);
    return p;
}

}  // namespace dsv4

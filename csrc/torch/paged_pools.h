// Page tables, free pages and work lists as the allocation ops take them, and their checks.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "common/page_segments.h"

namespace dsv4 {

// int32 [max_requests, columns] in table order. A pool that does not exist has another tensor in its place, which is
// never used.
using PageTables = std::array<at::Tensor, kNumPools>;

namespace check {

// Six counts in table order.
void pool_list(const char* op, const char* name, at::IntArrayRef counts);

// A work list: int32 [S + kPartRows, 8], or [0, 8]. Returns S.
int64_t segments(const char* op, const at::Tensor& segments, const char* on_name, const at::Tensor& on);

// Items of all segments, by which a device chooses how many cores share them; 0: the caller does not know.
int64_t num_items(const char* op, int64_t num_items);

// log2 of a page size.
int32_t page_shift(const char* op, const char* pool, int64_t page_size);

}  // namespace check

struct PagedArguments {
    PagedPools pools;
    PageTables tables;
};

// Checks what the ops that move pages have in common. tables: of the pools that exist, in table order; page_sizes: six,
// 0 for a pool that does not exist; free_pages: int32, the rings of all pools one after another, num_pages[pool]
// entries each. Raises ValueError.
PagedArguments check_paged_pools(const char* op, at::TensorList tables, at::IntArrayRef page_sizes,
                                 const at::Tensor& free_pages, at::IntArrayRef num_pages);

// int32 [requests, columns] of one pool on the device of `on`, rows apart from each other. Returns the distance between
// two rows in elements.
int64_t check_page_table(const char* op, const char* name, const at::Tensor& table, const char* on_name,
                         const at::Tensor& on);

}  // namespace dsv4

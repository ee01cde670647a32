// Outputs of a step: sizes, request tables and page tables (docs/spec.md, 3.1, 3.2). Shared by the ops that write them.
#pragma once

#include "common/step_rows.h"

// Outputs of compress_metadata. `_row_elems` is the distance between two rows of a request table; it is 0 when the pool
// does not exist, and then nothing but positions is written for it.
struct StepMetadataParams {
    int64_t window;  // tokens that the sliding window keeps
    int64_t swa_row_elems;
    int64_t c4_row_elems;
    int64_t c128_row_elems;
    int64_t c4_state_row_elems;
    int64_t c128_state_row_elems;
    int64_t swa_columns_pages;  // columns of the page tables
    int64_t c4_columns_pages;
    int64_t c128_columns_pages;
    int64_t c4_state_columns_pages;
    int64_t c128_state_columns_pages;
    int64_t c4_capacity_groups;  // entries of positions_c4 and c4_loc
    int64_t c128_capacity_groups;
    int32_t page_shift;  // log2 of the slots in a page
    int32_t reserved;    // keeps the struct free of padding
};

// Slots of a step's tokens and completed groups: outputs of verify_bundle. `_row_elems` as above.
struct StepSlotsParams {
    int64_t full_row_elems;
    int64_t swa_row_elems;
    int64_t c4_row_elems;
    int64_t c128_row_elems;
    int64_t c4_state_row_elems;
    int64_t c128_state_row_elems;
    int64_t c4_capacity_groups;  // entries of out_c4_loc; 0 when the pool does not exist
    int64_t c128_capacity_groups;
};

namespace dsv4 {

constexpr int32_t kSkipPage = 0;  // what state kernels skip
constexpr int32_t kNoPage = -1;   // what attention kernels take for the end of a row

DSV4_HOST_DEVICE constexpr bool pool_exists(int64_t row_elems) { return row_elems != 0; }

// Columns that a page table of `ratio`-token units needs for a request of `length` tokens.
DSV4_HOST_DEVICE constexpr int64_t page_columns(int64_t length, int64_t ratio, int32_t page_shift) {
    return max_of<int64_t>(1, pages_for(length / ratio, page_shift));
}

// Entries [begin, end) of a row of a page table that name pages; none for padding.
struct PageSpan {
    int64_t begin;
    int64_t end;
};

DSV4_HOST_DEVICE constexpr PageSpan swa_pages(const StepRow& row, const StepMetadataParams& p) {
    return PageSpan{page_of(swa_start(row.start, p.window, p.page_shift), p.page_shift),
                    pages_for(final_length(row), p.page_shift)};
}

DSV4_HOST_DEVICE constexpr PageSpan group_pages(const StepRow& row, int64_t ratio, const StepMetadataParams& p) {
    return PageSpan{0, pages_for(groups_in(final_length(row), ratio), p.page_shift)};
}

DSV4_HOST_DEVICE constexpr PageSpan state_pages(const StepRow& row, int64_t ratio, const StepMetadataParams& p) {
    return PageSpan{page_of(state_start(row.start, ratio, p.page_shift), p.page_shift),
                    pages_for(final_length(row), p.page_shift)};
}

// Column of a request table that holds the first unit of page `page`.
DSV4_HOST_DEVICE constexpr int64_t first_unit_of_page(int64_t page, int32_t page_shift) { return page << page_shift; }

}  // namespace dsv4

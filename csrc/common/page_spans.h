// The five page tables of a step by pool, for code that handles all of them alike.
#pragma once

#include "common/pools.h"
#include "common/step_outputs.h"

namespace dsv4 {

// Sizes of a page table and of the request table that it comes from.
struct PageTableShape {
    int64_t row_elems;  // of the request table; 0 when the pool does not exist
    int64_t columns;    // pages
};

DSV4_HOST_DEVICE constexpr PageTableShape page_table_shape(int32_t pool, const StepMetadataParams& p) {
    return pool == kSwa       ? PageTableShape{p.swa_row_elems, p.swa_columns_pages}
           : pool == kC4      ? PageTableShape{p.c4_row_elems, p.c4_columns_pages}
           : pool == kC128    ? PageTableShape{p.c128_row_elems, p.c128_columns_pages}
           : pool == kC4State ? PageTableShape{p.c4_state_row_elems, p.c4_state_columns_pages}
                              : PageTableShape{p.c128_state_row_elems, p.c128_state_columns_pages};
}

// Entries of a row that name pages.
DSV4_HOST_DEVICE constexpr PageSpan page_span(int32_t pool, const StepRow& row, const StepMetadataParams& p) {
    return pool == kSwa       ? swa_pages(row, p)
           : pool == kC4      ? group_pages(row, kRatioC4, p)
           : pool == kC128    ? group_pages(row, kRatioC128, p)
           : pool == kC4State ? state_pages(row, kRatioC4, p)
                              : state_pages(row, kRatioC128, p);
}

}  // namespace dsv4

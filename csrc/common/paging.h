// Pages and slots. A pool is split into pages of 2^page_shift slots; slot = page * page_size + offset, and page 0 is
// reserved ("none"). A unit is what one slot of a pool holds: 1, 4 or 128 raw tokens.
#pragma once

#include "common/integer.h"

namespace dsv4 {

DSV4_HOST_DEVICE constexpr int64_t page_of(int64_t slot_or_unit, int32_t page_shift) {
    return slot_or_unit >> page_shift;
}

DSV4_HOST_DEVICE constexpr int64_t page_start(int64_t unit, int32_t page_shift) {
    return (unit >> page_shift) << page_shift;
}

DSV4_HOST_DEVICE constexpr int64_t offset_in_page(int64_t slot_or_unit, int32_t page_shift) {
    return slot_or_unit & ((int64_t{1} << page_shift) - 1);
}

// Congruence (docs/spec.md, invariants): the offset of a slot is the offset of its unit.
DSV4_HOST_DEVICE constexpr int64_t slot_of(int64_t page, int64_t unit, int32_t page_shift) {
    return (page << page_shift) + offset_in_page(unit, page_shift);
}

// First unit of the page after that of `unit`.
DSV4_HOST_DEVICE constexpr int64_t next_page_start(int64_t unit, int32_t page_shift) {
    return (page_of(unit, page_shift) + 1) << page_shift;
}

// Pages that the units [0, units) touch.
DSV4_HOST_DEVICE constexpr int64_t pages_for(int64_t units, int32_t page_shift) {
    return (units + (int64_t{1} << page_shift) - 1) >> page_shift;
}

// `unit` itself when a page starts there, else the start of the next page.
DSV4_HOST_DEVICE constexpr int64_t page_start_from(int64_t unit, int32_t page_shift) {
    return pages_for(unit, page_shift) << page_shift;
}

// Column of a page table that holds page `page` of a request. With fewer columns than pages the row is a ring.
DSV4_HOST_DEVICE constexpr int64_t page_column(int64_t page, int32_t columns) {
    return page < columns ? page : page % columns;
}

}  // namespace dsv4

// Taking over the slots of another request: parameters and index arithmetic, shared by the CPU loops and the device
// kernel.
#pragma once

#include "common/page_segments.h"
#include "common/pools.h"

// Arrays are in table order; their length is a number because launch stubs repeat the struct outside its namespace.
struct SharePagesParams {
    int64_t row_elems[6];   // stride between two rows of a request table
    int64_t num_units;      // of all segments; 0: not known
    int32_t columns[6];     // units that a row of the table holds; 0: the pool does not exist
    int32_t num_pages[6];   // entries of the pool's ring
    int32_t ring_begin[6];  // where the pool's ring starts in free_pages
    int32_t max_requests;                 // rows of the request tables
    int32_t num_segments;
    int32_t num_copies;  // entries of the lists of pages
    int32_t page_shift;
};

namespace dsv4 {

// What is wrong with a segment.
constexpr int32_t kShareValid = 0;
constexpr int32_t kSharePool = 1;
constexpr int32_t kShareRequests = 2;
constexpr int32_t kShareUnits = 3;
constexpr int32_t kShareCopy = 4;

DSV4_HOST_DEVICE constexpr bool is_copy(const ShareSegment& s) { return s.ring_position != kSharePages; }

DSV4_HOST_DEVICE constexpr bool copies_one_page(const ShareSegment& s, const SharePagesParams& p) {
    return offset_in_page(s.begin_unit, p.page_shift) == 0 &&
           s.end_unit <= next_page_start(s.begin_unit, p.page_shift) && s.ring_position >= 0 &&
           s.ring_position < p.num_pages[s.pool] && s.copy >= 0 && s.copy < p.num_copies;
}

DSV4_HOST_DEVICE constexpr int32_t share_fault(const ShareSegment& s, const SharePagesParams& p) {
    if (s.pool < 0 || s.pool >= kNumPools) {
        return kSharePool;
    }
    if (s.request < 0 || s.request >= p.max_requests || s.source < 0 || s.source >= p.max_requests ||
        s.request == s.source) {
        return kShareRequests;
    }
    if (s.begin_unit < 0 || s.begin_unit >= s.end_unit || s.end_unit > p.columns[s.pool]) {
        return kShareUnits;
    }
    return !is_copy(s) || copies_one_page(s, p) ? kShareValid : kShareCopy;
}

DSV4_HOST_DEVICE constexpr int64_t target_offset_elems(const ShareSegment& s, int64_t unit,
                                                       const SharePagesParams& p) {
    return s.request * p.row_elems[s.pool] + unit;
}

DSV4_HOST_DEVICE constexpr int64_t source_offset_elems(const ShareSegment& s, int64_t unit,
                                                       const SharePagesParams& p) {
    return s.source * p.row_elems[s.pool] + unit;
}

// Entry of free_pages that holds the page of a copy.
DSV4_HOST_DEVICE constexpr int64_t copy_page_offset_elems(const ShareSegment& s, const SharePagesParams& p) {
    return p.ring_begin[s.pool] + s.ring_position;
}

// What a device works on at a time.
constexpr int32_t kSharePieceUnits = 8192;

DSV4_HOST_DEVICE constexpr int64_t share_pages_blocks(const SharePagesParams& p, int64_t cores) {
    return segment_blocks(p.num_segments, 8, p.num_units, cores);
}

}  // namespace dsv4

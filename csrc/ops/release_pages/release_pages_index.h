// Giving pages back: parameters and index arithmetic, shared by the CPU loops and the device kernel.
#pragma once

#include "common/page_segments.h"
#include "common/pools.h"

// Arrays are in table order; their length is a number because launch stubs repeat the struct outside its namespace.
struct ReleasePagesParams {
    int64_t row_elems[6];   // stride between two rows of a request table
    int64_t num_units;      // of all segments; 0: not known
    int32_t columns[6];     // units that a row of the table holds; 0: the pool does not exist
    int32_t num_pages[6];   // entries of the pool's ring
    int32_t ring_begin[6];  // where the pool's ring starts in free_pages
    int32_t max_requests;                 // rows of the request tables
    int32_t num_segments;
    int32_t page_shift;
    int32_t reserved;  // keeps the struct free of padding
};

namespace dsv4 {

// What is wrong with a segment.
constexpr int32_t kReleaseValid = 0;
constexpr int32_t kReleasePool = 1;
constexpr int32_t kReleaseRequest = 2;
constexpr int32_t kReleaseUnits = 3;
constexpr int32_t kReleasePages = 4;

DSV4_HOST_DEVICE constexpr bool gives_ring_pages(const ReleaseSegment& s, int32_t num_pages, int32_t page_shift) {
    return offset_in_page(s.begin_unit, page_shift) == 0 && s.ring_position >= 0 && s.ring_position < num_pages &&
           pages_for(s.end_unit - s.begin_unit, page_shift) <= num_pages;
}

DSV4_HOST_DEVICE constexpr int32_t release_fault(const ReleaseSegment& s, const ReleasePagesParams& p) {
    if (s.pool < 0 || s.pool >= kNumPools) {
        return kReleasePool;
    }
    if (s.request < 0 || s.request >= p.max_requests) {
        return kReleaseRequest;
    }
    if (s.begin_unit < 0 || s.begin_unit >= s.end_unit || s.end_unit > p.columns[s.pool]) {
        return kReleaseUnits;
    }
    const bool valid = s.ring_position == kKeepPage || gives_ring_pages(s, p.num_pages[s.pool], p.page_shift);
    return valid ? kReleaseValid : kReleasePages;
}

// Entry of free_pages that takes the page of `unit`, for a segment that gives pages back.
DSV4_HOST_DEVICE constexpr int64_t freed_page_offset_elems(const ReleaseSegment& s, int64_t unit,
                                                           const ReleasePagesParams& p) {
    const int64_t pages = page_of(unit, p.page_shift) - page_of(s.begin_unit, p.page_shift);
    return p.ring_begin[s.pool] + ring_entry(s.ring_position, pages, p.num_pages[s.pool]);
}

DSV4_HOST_DEVICE constexpr int64_t table_offset_elems(const ReleaseSegment& s, int64_t unit,
                                                      const ReleasePagesParams& p) {
    return s.request * p.row_elems[s.pool] + unit;
}

// What a device works on at a time.
constexpr int32_t kReleasePiecePages = 512;
constexpr int32_t kReleaseZeroUnits = 4096;

// Pages from the one that starts at `unit` on, up to `end`, whose ids a device gives back at once: they lie next to each
// other in the ring.
DSV4_HOST_DEVICE constexpr int64_t release_piece_pages(const ReleaseSegment& s, int64_t unit, int64_t end,
                                                       const ReleasePagesParams& p) {
    const int64_t entry = freed_page_offset_elems(s, unit, p) - p.ring_begin[s.pool];
    const int64_t pages_before_wrap = p.num_pages[s.pool] - entry;
    return min_of(min_of<int64_t>(kReleasePiecePages, pages_before_wrap), pages_for(end - unit, p.page_shift));
}

DSV4_HOST_DEVICE constexpr int64_t release_pages_blocks(const ReleasePagesParams& p, int64_t cores) {
    return segment_blocks(p.num_segments, 8, p.num_units, cores);
}

}  // namespace dsv4

// Carrying out an allocation: parameters and index arithmetic, shared by the CPU loops and the device kernel.
#pragma once

#include "common/page_segments.h"
#include "common/pools.h"

// Arrays are in table order; their length is a number because launch stubs repeat the struct outside its namespace.
struct ReserveExtendParams {
    int64_t row_elems[6];   // stride between two rows of a request table
    int32_t columns[6];     // units that a row of the table holds; 0: the pool does not exist
    int32_t num_pages[6];   // entries of the pool's ring
    int32_t ring_begin[6];  // where the pool's ring starts in free_pages
    int32_t num_slots[6];   // entries of the pool's output
    int32_t max_requests;                 // rows of the request tables
    int32_t num_segments;
    int32_t page_shift;
    int32_t reserved;  // keeps the struct free of padding
};

namespace dsv4 {

// What is wrong with a segment.
constexpr int32_t kSegmentValid = 0;
constexpr int32_t kSegmentPool = 1;
constexpr int32_t kSegmentRequest = 2;
constexpr int32_t kSegmentUnits = 3;
constexpr int32_t kSegmentOutput = 4;
constexpr int32_t kSegmentSource = 5;
constexpr int32_t kSegmentPages = 6;

DSV4_HOST_DEVICE constexpr int64_t segment_pages(const ReserveSegment& s, int32_t page_shift) {
    return pages_for(s.end_unit - s.begin_unit, page_shift);
}

DSV4_HOST_DEVICE constexpr bool joins_one_page(const ReserveSegment& s, int32_t page_shift) {
    return offset_in_page(s.begin_unit, page_shift) != 0 && s.end_unit <= next_page_start(s.begin_unit, page_shift);
}

DSV4_HOST_DEVICE constexpr bool takes_ring_pages(const ReserveSegment& s, int32_t num_pages, int32_t page_shift) {
    return offset_in_page(s.begin_unit, page_shift) == 0 && s.ring_position >= 0 && s.ring_position < num_pages &&
           segment_pages(s, page_shift) <= num_pages;
}

DSV4_HOST_DEVICE constexpr int32_t segment_fault(const ReserveSegment& s, const ReserveExtendParams& p) {
    if (s.pool < 0 || s.pool >= kNumPools) {
        return kSegmentPool;
    }
    if (s.request < 0 || s.request >= p.max_requests) {
        return kSegmentRequest;
    }
    if (s.begin_unit < 0 || s.begin_unit >= s.end_unit || s.end_unit > p.columns[s.pool]) {
        return kSegmentUnits;
    }
    if (s.out_begin < 0 || s.out_begin > p.num_slots[s.pool] - (s.end_unit - s.begin_unit)) {
        return kSegmentOutput;
    }
    if (s.source == kKeepSlots) {
        return kSegmentValid;
    }
    if (s.source == kJoinPage) {
        return joins_one_page(s, p.page_shift) ? kSegmentValid : kSegmentPages;
    }
    if (s.source == kTakePages) {
        return takes_ring_pages(s, p.num_pages[s.pool], p.page_shift) ? kSegmentValid : kSegmentPages;
    }
    return kSegmentSource;
}

// Entry of free_pages that holds the page of `unit`, for a segment that takes pages.
DSV4_HOST_DEVICE constexpr int64_t free_page_offset_elems(const ReserveSegment& s, int64_t unit,
                                                          const ReserveExtendParams& p) {
    const int64_t pages = page_of(unit, p.page_shift) - page_of(s.begin_unit, p.page_shift);
    return p.ring_begin[s.pool] + ring_entry(s.ring_position, pages, p.num_pages[s.pool]);
}

DSV4_HOST_DEVICE constexpr int64_t table_offset_elems(const ReserveSegment& s, int64_t unit,
                                                      const ReserveExtendParams& p) {
    return s.request * p.row_elems[s.pool] + unit;
}

DSV4_HOST_DEVICE constexpr int64_t slot_offset_elems(const ReserveSegment& s, int64_t unit) {
    return s.out_begin + (unit - s.begin_unit);
}

// What a device works on at a time: pieces of one segment, batches of pieces that fit into UB together.
constexpr int32_t kReservePieceUnits = 1024;
constexpr uint32_t kReserveBatchUnits = 8192;
constexpr uint32_t kReserveBatchPieces = 64;

// Pages that `units` units from `begin` on touch.
DSV4_HOST_DEVICE constexpr int64_t pages_touched(int64_t begin, int64_t units, int32_t page_shift) {
    return page_of(begin + units - 1, page_shift) - page_of(begin, page_shift) + 1;
}

// Units from `begin` on that a device may take as one piece: their page ids lie next to each other in the ring, and
// pages longer than a piece come one at a time.
DSV4_HOST_DEVICE constexpr int32_t piece_units(const ReserveSegment& s, int64_t begin, const ReserveExtendParams& p) {
    if (s.source != kTakePages) {
        return kReservePieceUnits;
    }
    const int64_t page_begin = page_start(begin, p.page_shift);
    const int64_t page_units = int64_t{1} << p.page_shift;
    const int64_t entry = free_page_offset_elems(s, begin, p) - p.ring_begin[s.pool];
    const int64_t pages_before_wrap = p.num_pages[s.pool] - entry;
    const int64_t whole_pages = page_units > kReservePieceUnits
                                    ? page_units
                                    : min_of<int64_t>(kReservePieceUnits, pages_before_wrap << p.page_shift);
    return static_cast<int32_t>(min_of<int64_t>(kReservePieceUnits, page_begin + whole_pages - begin));
}

DSV4_HOST_DEVICE constexpr int64_t reserve_extend_blocks(const ReserveExtendParams& p, int64_t cores) {
    int64_t units = 0;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        units += p.num_slots[pool];
    }
    return segment_blocks(p.num_segments, 32, units, cores);
}

}  // namespace dsv4

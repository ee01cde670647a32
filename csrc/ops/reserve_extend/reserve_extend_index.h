// Carrying out an allocation: parameters and index arithmetic, shared by the CPU loops and the device kernel.
#pragma once

#include "common/page_segments.h"
#include "common/step_launch.h"

struct ReserveExtendParams {
    PagedPools pools;
    int32_t num_slots[6];  // entries of the pool's output
    int32_t num_segments;
    int32_t reserved;  // keeps the struct free of padding
};

namespace dsv4 {

DSV4_HOST_DEVICE constexpr bool is_pool(int32_t pool) { return pool >= 0 && pool < kNumPools; }

// What is wrong with a segment.
constexpr int32_t kSegmentValid = 0;
constexpr int32_t kSegmentPool = 1;
constexpr int32_t kSegmentRequest = 2;
constexpr int32_t kSegmentUnits = 3;
constexpr int32_t kSegmentOutput = 4;
constexpr int32_t kSegmentSource = 5;
constexpr int32_t kSegmentPages = 6;

// Pages that the units [begin, end) touch.
DSV4_HOST_DEVICE constexpr int64_t pages_touched(int64_t begin, int64_t end, int32_t page_shift) {
    return page_of(end - 1, page_shift) - page_of(begin, page_shift) + 1;
}

DSV4_HOST_DEVICE constexpr bool takes_ring_pages(const ReserveSegment& s, const PagedPools& p) {
    return offset_in_page(s.begin, p.page_shift[s.pool]) == 0 &&
           in_ring(s.ring_position, pages_for(s.end - s.begin, p.page_shift[s.pool]), s.pool, p);
}

DSV4_HOST_DEVICE constexpr bool has_page_columns(const ReserveSegment& s, const PagedPools& p) {
    const int32_t shift = p.page_shift[s.pool];
    return has_columns(page_of(s.begin, shift), page_of(s.end - 1, shift) + 1, s.pool, p);
}

DSV4_HOST_DEVICE constexpr int32_t segment_fault(const ReserveSegment& s, const ReserveExtendParams& p) {
    if (!is_pool(s.pool) || p.pools.columns[s.pool] == 0) {
        return kSegmentPool;
    }
    if (s.request < 0 || s.request >= p.pools.max_requests) {
        return kSegmentRequest;
    }
    if (s.begin < 0 || s.begin >= s.end || (s.source != kNoSlots && !has_page_columns(s, p.pools))) {
        return kSegmentUnits;
    }
    if (s.out_begin < 0 || s.out_begin > p.num_slots[s.pool] - (s.end - s.begin)) {
        return kSegmentOutput;
    }
    if (s.source == kKeepSlots || s.source == kNoSlots) {
        return kSegmentValid;
    }
    if (s.source == kTakePages) {
        return takes_ring_pages(s, p.pools) ? kSegmentValid : kSegmentPages;
    }
    return kSegmentSource;
}

// Entry of free_pages that holds the page of `unit`, for a segment that takes pages.
DSV4_HOST_DEVICE constexpr int64_t free_page_elems(const ReserveSegment& s, int64_t unit, const PagedPools& p) {
    const int32_t shift = p.page_shift[s.pool];
    return free_page_elems(s.pool, s.ring_position, page_of(unit, shift) - page_of(s.begin, shift), p);
}

// Entry of the pool's table that holds the page of `unit`.
DSV4_HOST_DEVICE constexpr int64_t unit_entry_elems(const ReserveSegment& s, int64_t unit, const PagedPools& p) {
    return page_entry_elems(s.pool, s.request, page_of(unit, p.page_shift[s.pool]), p);
}

DSV4_HOST_DEVICE constexpr int64_t slot_elems(const ReserveSegment& s, int64_t unit) {
    return s.out_begin + (unit - s.begin);
}

// What a device works on at a time: pieces of one segment, batches of pieces that fit into UB together.
constexpr int32_t kReservePieceUnits = 1024;
constexpr uint32_t kReserveBatchUnits = 8192;
constexpr uint32_t kReserveBatchPieces = 64;

// Units of [begin, end) that a device takes as one piece: their page ids lie next to each other wherever they are read
// and written. The block that has the first unit of a taken page writes its entry, so that what lies before it is a
// piece of its own.
DSV4_HOST_DEVICE constexpr int32_t piece_units(const ReserveSegment& s, int64_t begin, int64_t end,
                                               const PagedPools& p) {
    int64_t units = min_of<int64_t>(kReservePieceUnits, end - begin);
    if (s.source == kNoSlots) {
        return static_cast<int32_t>(units);
    }
    const int32_t shift = p.page_shift[s.pool];
    const int64_t page = page_of(begin, shift);
    int64_t pages = pages_before_last_column(s.pool, page, p);
    if (s.source == kTakePages) {
        const bool starts_page = offset_in_page(begin, shift) == 0;
        pages = starts_page ? min_of(pages, pages_before_ring_end(s.pool, s.ring_position,
                                                                  page - page_of(s.begin, shift), p))
                            : 1;
    }
    return static_cast<int32_t>(min_of<int64_t>(units, ((page + pages) << shift) - begin));
}

// Segments that are alike, of at most a 32-byte block of units each, are worked on together where there are enough.
constexpr int64_t kAlikeSegments = 128;
constexpr uint32_t kLeastAlike = 4;
constexpr uint32_t kAlikeRuns = 8;  // at a time
constexpr int64_t kAlikeAreas = 4;
constexpr int64_t kAlikeElems = (6 * kLaneElems + 2) * kAlikeSegments + lane_scan_elems(kAlikeSegments, kAlikeAreas);
static_assert(kAlikeSegments * kLaneElems <= kReservePieceUnits, "numbers of their lanes");
// Pages whose column V finds in float32.
constexpr int32_t kMostScannedPage = (1 << 20) - 1;

constexpr int64_t kReserveSegmentNs = 100;

DSV4_HOST_DEVICE constexpr int64_t reserve_extend_blocks(const ReserveExtendParams& p, int64_t cores) {
    int64_t units = 0;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        units += p.num_slots[pool];
    }
    return segment_blocks(p.num_segments, units, cores, kReserveSegmentNs);
}

}  // namespace dsv4

// Giving pages back: parameters and index arithmetic, shared by the CPU loops and the device kernel.
#pragma once

#include "common/page_segments.h"

struct ReleasePagesParams {
    PagedPools pools;
    int64_t num_items;  // pages of all segments; 0: not known
    int32_t num_segments;
    int32_t reserved;  // keeps the struct free of padding
};

namespace dsv4 {

// What is wrong with a segment.
constexpr int32_t kReleaseValid = 0;
constexpr int32_t kReleasePool = 1;
constexpr int32_t kReleaseRequest = 2;
constexpr int32_t kReleasePages = 3;
constexpr int32_t kReleaseRing = 4;

DSV4_HOST_DEVICE constexpr int32_t release_fault(const ReleaseSegment& s, const ReleasePagesParams& p) {
    if (s.pool < 0 || s.pool >= kNumPools || p.pools.columns[s.pool] == 0) {
        return kReleasePool;
    }
    if (s.request < 0 || s.request >= p.pools.max_requests) {
        return kReleaseRequest;
    }
    if (s.begin < 0 || s.begin >= s.end || !has_columns(s.begin, s.end, s.pool, p.pools)) {
        return kReleasePages;
    }
    const bool valid = s.ring_position == kKeepPage || in_ring(s.ring_position, s.end - s.begin, s.pool, p.pools);
    return valid ? kReleaseValid : kReleaseRing;
}

// Entry of free_pages that takes page `page`, for a segment that gives pages back.
DSV4_HOST_DEVICE constexpr int64_t freed_page_elems(const ReleaseSegment& s, int64_t page, const PagedPools& p) {
    return free_page_elems(s.pool, s.ring_position, page - s.begin, p);
}

// What a device works on at a time: pieces of one segment, batches of pieces that fit into UB together.
constexpr int32_t kReleasePiecePages = 1024;
constexpr uint32_t kReleaseBatchPages = 8192;
constexpr uint32_t kReleaseBatchPieces = 64;

// Pages of [begin, end) that a device takes as one piece: they lie next to each other in the table and in the ring.
DSV4_HOST_DEVICE constexpr int32_t release_piece_pages(const ReleaseSegment& s, int64_t begin, int64_t end,
                                                       const PagedPools& p) {
    const int64_t pages = min_of(min_of<int64_t>(kReleasePiecePages, end - begin),
                                 pages_before_last_column(s.pool, begin, p));
    const int64_t ring = s.ring_position == kKeepPage
                             ? pages
                             : pages_before_ring_end(s.pool, s.ring_position, begin - s.begin, p);
    return static_cast<int32_t>(min_of(pages, ring));
}

DSV4_HOST_DEVICE constexpr int64_t release_pages_blocks(const ReleasePagesParams& p, int64_t cores) {
    return segment_blocks(p.num_segments, p.num_items, cores);
}

}  // namespace dsv4

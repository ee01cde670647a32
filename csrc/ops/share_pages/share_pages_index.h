// Taking over the pages of another request: parameters and index arithmetic, shared by the CPU loops and the device
// kernel.
#pragma once

#include "common/page_segments.h"

struct SharePagesParams {
    PagedPools pools;
    int64_t num_items;  // pages of all segments; 0: not known
    int32_t num_segments;
    int32_t num_copies;  // entries of the lists of pages
};

namespace dsv4 {

// What is wrong with a segment.
constexpr int32_t kShareValid = 0;
constexpr int32_t kSharePool = 1;
constexpr int32_t kShareRequests = 2;
constexpr int32_t kSharePageRange = 3;
constexpr int32_t kShareCopy = 4;

DSV4_HOST_DEVICE constexpr bool is_copy(const ShareSegment& s) { return s.ring_position != kSharePages; }

DSV4_HOST_DEVICE constexpr bool copies_one_page(const ShareSegment& s, const SharePagesParams& p) {
    return s.end == s.begin + 1 && in_ring(s.ring_position, 1, s.pool, p.pools) && s.copy >= 0 && s.copy < p.num_copies;
}

DSV4_HOST_DEVICE constexpr int32_t share_fault(const ShareSegment& s, const SharePagesParams& p) {
    if (s.pool < 0 || s.pool >= kNumPools || p.pools.columns[s.pool] == 0) {
        return kSharePool;
    }
    if (s.request < 0 || s.request >= p.pools.max_requests || s.source < 0 || s.source >= p.pools.max_requests ||
        s.request == s.source) {
        return kShareRequests;
    }
    if (s.begin < 0 || s.begin >= s.end || !has_columns(s.begin, s.end, s.pool, p.pools)) {
        return kSharePageRange;
    }
    return !is_copy(s) || copies_one_page(s, p) ? kShareValid : kShareCopy;
}

// Entry of the pool's table that holds page `page` of the row that gets it, and of the row that has it.
DSV4_HOST_DEVICE constexpr int64_t target_elems(const ShareSegment& s, int64_t page, const PagedPools& p) {
    return page_entry_elems(s.pool, s.request, page, p);
}

DSV4_HOST_DEVICE constexpr int64_t source_elems(const ShareSegment& s, int64_t page, const PagedPools& p) {
    return page_entry_elems(s.pool, s.source, page, p);
}

// Entry of free_pages that holds the page of a copy.
DSV4_HOST_DEVICE constexpr int64_t copy_page_elems(const ShareSegment& s, const PagedPools& p) {
    return free_page_elems(s.pool, s.ring_position, 0, p);
}

// What a device works on at a time.
constexpr int32_t kSharePiecePages = 8192;

DSV4_HOST_DEVICE constexpr int64_t share_pages_blocks(const SharePagesParams& p, int64_t cores) {
    return even_blocks(kListParts,
                       max_of(blocks_for(p.num_segments, 32, cores), blocks_for(p.num_items, 2048, cores)));
}

}  // namespace dsv4

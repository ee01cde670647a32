// Work lists that the host's ledger hands to the allocation ops: one segment is an interval of one request in one pool,
// of units where slots are reported, of pages where only pages change hands. All are 8 int32, the rows of an int32
// tensor, 32 bytes: the unit in which the device copies.
//
// Behind its segments a list says where each of kListParts parts of its items begins, so that a device's blocks, which take
// whole parts, need not search. A part begins at a 32-byte piece of what its items write, so that no two blocks write into
// one.
//
// The free pages of a pool are a ring of int32 page ids on the device, as long as the pool has usable pages; the host
// knows the position of the first free page and how many there are, the device only the ids.
#pragma once

#include "common/launch_plan.h"
#include "common/pools.h"

// The page tables of all pools and their rings of free pages, as the allocation ops take them. Arrays are in table
// order; their length is a number because launch stubs repeat the struct outside its namespace.
struct PagedPools {
    int64_t row_elems[6];   // stride between two rows of a page table
    int32_t columns[6];     // entries in a row of a page table; 0: the pool does not exist
    int32_t page_shift[6];  // log2 of the slots in a page
    int32_t num_pages[6];   // entries of the pool's ring
    int32_t ring_begin[6];  // where the pool's ring starts in free_pages
    int32_t max_requests;   // rows of the page tables
    int32_t reserved;       // keeps the struct free of padding
};

struct ReserveSegment {
    int32_t pool;     // table order
    int32_t request;  // row of the page table
    int32_t begin;    // units [begin, end)
    int32_t end;
    int32_t source;         // dsv4::kKeepSlots, kTakePages or kNoSlots
    int32_t ring_position;  // kTakePages: where the first page comes from; the next pages follow it in the ring
    int32_t out_begin;      // entry of the pool's output that takes the slot of unit `begin`
    int32_t items_before;   // units of all earlier segments of the list, by which a device shares the work out
};

struct ReleaseSegment {
    int32_t pool;
    int32_t request;
    int32_t begin;  // pages [begin, end): table entries that become 0
    int32_t end;
    int32_t ring_position;  // where the first page of the interval goes; dsv4::kKeepPage: others still own the pages
    int32_t reserved[2];
    int32_t items_before;  // pages of all earlier segments
};

// Pages that one request takes over from another: pages that both use from now on, or one page that is copied.
struct ShareSegment {
    int32_t pool;
    int32_t request;  // row that gets pages
    int32_t begin;    // pages [begin, end)
    int32_t end;
    int32_t source;         // row that has them
    int32_t ring_position;  // where the page of the copy comes from; dsv4::kSharePages: no copy
    int32_t copy;           // of a copy: its entry in the lists of pages
    int32_t items_before;   // pages of all earlier segments
};

// Entries of the full-to-swa mapping: those of the full slots that the request has for units [begin, end).
struct MapSegment {
    int32_t request;
    int32_t begin;
    int32_t end;
    int32_t source;  // dsv4::kMapNothing or kMapTable
    int32_t reserved[3];
    int32_t items_before;  // units of all earlier segments
};

// Where a part of a list begins; behind the last part, where the list ends.
struct ListPart {
    int32_t segment;
    int32_t item;  // of the whole list, in that segment
};

namespace dsv4 {

constexpr int64_t kSegmentFields = 8;
constexpr int64_t kListParts = 64;
// Rows of a list behind its segments: as many as hold the beginnings of the parts.
constexpr int64_t kPartRows = ceil_div<int64_t>((kListParts + 1) * 2, kSegmentFields);
static_assert(sizeof(ReserveSegment) == kSegmentFields * sizeof(int32_t));
static_assert(sizeof(ReleaseSegment) == kSegmentFields * sizeof(int32_t));
static_assert(sizeof(ShareSegment) == kSegmentFields * sizeof(int32_t));
static_assert(sizeof(MapSegment) == kSegmentFields * sizeof(int32_t));

// The request has the page of every unit; its slots are only reported.
constexpr int32_t kKeepSlots = 0;
// The units start at a page boundary and take pages from the ring.
constexpr int32_t kTakePages = 1;
// The request has no page there: 0 is reported, and the table is not read. A ring of columns holds other pages by then.
constexpr int32_t kNoSlots = 2;

constexpr int32_t kKeepPage = -1;

constexpr int32_t kSharePages = -1;

// The entries become 0: the units have no swa slots any more.
constexpr int32_t kMapNothing = 0;
// The entries become the units' swa slots.
constexpr int32_t kMapTable = 1;

// What a segment takes S, and V and the copies for every 8 items of it.
constexpr int64_t kSegmentNs = 200;
constexpr int64_t kEightItemsNs = 3;

// Blocks for a list, of whole parts each. num_items: of all segments; 0 where the host does not know it.
DSV4_HOST_DEVICE constexpr int64_t segment_blocks(int64_t num_segments, int64_t num_items, int64_t cores,
                                                  int64_t segment_ns = kSegmentNs) {
    return even_blocks(kListParts, blocks_for_work(segment_ns * num_segments + kEightItemsNs * num_items / 8, cores));
}

// Requests that take over the same pages do so in turns of this many, so that a core that writes to many rows reads the
// entries once.
constexpr int64_t kShareTurnPages = 1024;

// Entries of all rings together.
DSV4_HOST_DEVICE constexpr int64_t ring_entries(const PagedPools& p) {
    return p.ring_begin[kNumPools - 1] + p.num_pages[kNumPools - 1];
}

// Entry of the ring that lies `pages` after `position`. capacity: usable pages of the pool, pages <= capacity.
DSV4_HOST_DEVICE constexpr int64_t ring_entry(int64_t position, int64_t pages, int64_t capacity) {
    const int64_t entry = position + pages;
    return entry >= capacity ? entry - capacity : entry;
}

// Whether pages of a pool can come from its ring, or go to it, from `position` on.
DSV4_HOST_DEVICE constexpr bool in_ring(int64_t position, int64_t pages, int32_t pool, const PagedPools& p) {
    return position >= 0 && position < p.num_pages[pool] && pages <= p.num_pages[pool];
}

// Entry of free_pages that lies `pages` after `position` of the pool's ring.
DSV4_HOST_DEVICE constexpr int64_t free_page_elems(int32_t pool, int64_t position, int64_t pages, const PagedPools& p) {
    return p.ring_begin[pool] + ring_entry(position, pages, p.num_pages[pool]);
}

// As many of `pages` pages from there on as lie next to each other in free_pages.
DSV4_HOST_DEVICE constexpr int64_t pages_before_ring_end(int32_t pool, int64_t position, int64_t pages,
                                                         const PagedPools& p) {
    return p.num_pages[pool] - ring_entry(position, pages, p.num_pages[pool]);
}

// Whether a row of the pool's table has a column for each of the pages [begin, end).
DSV4_HOST_DEVICE constexpr bool has_columns(int64_t begin, int64_t end, int32_t pool, const PagedPools& p) {
    return end - begin <= p.columns[pool] && (is_windowed_pool(pool) || end <= p.columns[pool]);
}

DSV4_HOST_DEVICE constexpr int64_t table_elems(int32_t pool, const PagedPools& p) {
    return p.max_requests * p.row_elems[pool];
}

// Entry of a pool's table that holds page `page` of a request.
DSV4_HOST_DEVICE constexpr int64_t page_entry_elems(int32_t pool, int64_t request, int64_t page, const PagedPools& p) {
    return request * p.row_elems[pool] + page_column(page, p.columns[pool]);
}

// Pages from `page` on whose entries lie next to each other.
DSV4_HOST_DEVICE constexpr int64_t pages_before_last_column(int32_t pool, int64_t page, const PagedPools& p) {
    return p.columns[pool] - page_column(page, p.columns[pool]);
}

}  // namespace dsv4

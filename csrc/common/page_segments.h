// Work lists that the host's ledger hands to the allocation ops: one segment is an interval of units of one request in
// one pool. All are 8 int32, the rows of an int32 tensor [S, 8], 32 bytes: the unit in which the device copies.
//
// The free pages of a pool are a ring of int32 page ids on the device, as long as the pool has usable pages; the host
// knows the position of the first free page and how many there are, the device only the ids.
#pragma once

#include "common/launch_plan.h"
#include "common/paging.h"

struct ReserveSegment {
    int32_t pool;        // table order
    int32_t request;     // row of the request table
    int32_t begin_unit;  // [begin_unit, end_unit)
    int32_t end_unit;
    int32_t source;         // dsv4::kKeepSlots, kJoinPage or kTakePages
    int32_t ring_position;  // kTakePages: where the first page comes from; the next pages follow it in the ring
    int32_t out_begin;      // entry of the pool's output that takes the slot of begin_unit
    int32_t units_before;   // units of all earlier segments of the list, by which a device shares the work out
};

struct ReleaseSegment {
    int32_t pool;
    int32_t request;
    int32_t begin_unit;  // [begin_unit, end_unit): table entries that become 0
    int32_t end_unit;
    int32_t ring_position;  // where the first page of the interval goes; dsv4::kKeepPage: no page is given back
    int32_t reserved[2];
    int32_t units_before;  // as above
};

// Units that one request takes over from another: whole pages that both use from now on, or the units of one page that
// is copied.
struct ShareSegment {
    int32_t pool;
    int32_t request;  // row that gets slots
    int32_t begin_unit;
    int32_t end_unit;
    int32_t source;         // row that has them
    int32_t ring_position;  // where the page of the copy comes from; dsv4::kSharePages: no copy
    int32_t copy;           // of a copy: its entry in the lists of pages
    int32_t units_before;   // as above
};

// Entries of the full-to-swa mapping: those of the full slots that the request has for [begin_unit, end_unit).
struct MapSegment {
    int32_t request;
    int32_t begin_unit;
    int32_t end_unit;
    int32_t source;  // dsv4::kMapNothing or kMapTable
    int32_t reserved[3];
    int32_t units_before;  // as above
};

namespace dsv4 {

constexpr int64_t kSegmentFields = 8;
constexpr int64_t kUnitsBeforeField = 7;
static_assert(sizeof(ReserveSegment) == kSegmentFields * sizeof(int32_t));
static_assert(sizeof(ReleaseSegment) == kSegmentFields * sizeof(int32_t));
static_assert(sizeof(ShareSegment) == kSegmentFields * sizeof(int32_t));
static_assert(sizeof(MapSegment) == kSegmentFields * sizeof(int32_t));

// The table already says which slots the units have (0: none); they are only reported.
constexpr int32_t kKeepSlots = 0;
// The units lie in the page of the unit before begin_unit, which has a slot.
constexpr int32_t kJoinPage = 1;
// The units start at a page boundary and take pages from the ring.
constexpr int32_t kTakePages = 2;

constexpr int32_t kKeepPage = -1;

constexpr int32_t kSharePages = -1;

// The entries become 0: the units have no swa slots any more.
constexpr int32_t kMapNothing = 0;
// The entries become what the swa table holds.
constexpr int32_t kMapTable = 1;

// Blocks for a list: one for every `block_segments` segments or 2048 units, whichever is more. num_units: of all segments;
// 0 where the host does not know it.
DSV4_HOST_DEVICE constexpr int64_t segment_blocks(int64_t num_segments, int64_t block_segments, int64_t num_units,
                                                  int64_t cores) {
    return max_of(blocks_for(num_segments, block_segments, cores), blocks_for(num_units, 2048, cores));
}

// Requests that take over the same pages do so in turns of this many units or one page, so that a core that writes to
// many rows reads the slots once.
constexpr int64_t kShareTurnUnits = 1024;

// Entries of all rings together, for pools of `num_pages` usable pages.
template <int32_t pools>
DSV4_HOST_DEVICE constexpr int64_t ring_entries(const int32_t (&num_pages)[pools]) {
    int64_t entries = 0;
    for (int32_t pool = 0; pool < pools; ++pool) {
        entries += num_pages[pool];
    }
    return entries;
}

// Entry of the ring that lies `pages` after `position`. capacity: usable pages of the pool, pages <= capacity.
DSV4_HOST_DEVICE constexpr int64_t ring_entry(int64_t position, int64_t pages, int64_t capacity) {
    const int64_t entry = position + pages;
    return entry >= capacity ? entry - capacity : entry;
}

// First unit of the page after that of `unit`.
DSV4_HOST_DEVICE constexpr int64_t next_page_start(int64_t unit, int32_t page_shift) {
    return (page_of(unit, page_shift) + 1) << page_shift;
}

// `unit` itself when a page starts there, else the start of the next page.
DSV4_HOST_DEVICE constexpr int64_t page_start_from(int64_t unit, int32_t page_shift) {
    return pages_for(unit, page_shift) << page_shift;
}

}  // namespace dsv4

// Keeping the full-to-swa mapping: parameters and index arithmetic, shared by the CPU loops and the device kernel.
#pragma once

#include "common/page_segments.h"

struct MapFullToSwaParams {
    int64_t full_row_elems;  // stride between two rows of the page table
    int64_t swa_row_elems;
    int64_t num_items;     // units of all segments; 0: not known
    int64_t num_slots;     // entries of the mapping: slots of the full pool, those of page 0 included
    int32_t full_columns;  // entries in a row of the page table
    int32_t swa_columns;
    int32_t max_requests;  // rows of both page tables
    int32_t num_segments;
    int32_t page_shift;  // log2 of the slots in a page, of both pools
    int32_t reserved;    // keeps the struct free of padding
};

namespace dsv4 {

// What is wrong with a segment.
constexpr int32_t kMapValid = 0;
constexpr int32_t kMapRequest = 1;
constexpr int32_t kMapUnits = 2;
constexpr int32_t kMapSource = 3;
constexpr int32_t kMapFullPage = 4;  // the full table holds no page of the mapping for a unit

DSV4_HOST_DEVICE constexpr int32_t map_fault(const MapSegment& s, const MapFullToSwaParams& p) {
    if (s.request < 0 || s.request >= p.max_requests) {
        return kMapRequest;
    }
    const int64_t end_page = pages_for(s.end, p.page_shift);
    if (s.begin < 0 || s.begin >= s.end || end_page > p.full_columns ||
        (s.source == kMapTable && end_page - page_of(s.begin, p.page_shift) > p.swa_columns)) {
        return kMapUnits;
    }
    return s.source == kMapNothing || s.source == kMapTable ? kMapValid : kMapSource;
}

// Whether the mapping has the whole page.
DSV4_HOST_DEVICE constexpr bool is_mapped_page(int64_t full_page, const MapFullToSwaParams& p) {
    return full_page > 0 && (full_page + 1) << p.page_shift <= p.num_slots;
}

// Entries of the tables that hold the pages of `unit`.
DSV4_HOST_DEVICE constexpr int64_t full_entry_elems(const MapSegment& s, int64_t unit, const MapFullToSwaParams& p) {
    return s.request * p.full_row_elems + page_of(unit, p.page_shift);
}

DSV4_HOST_DEVICE constexpr int64_t swa_entry_elems(const MapSegment& s, int64_t unit, const MapFullToSwaParams& p) {
    return s.request * p.swa_row_elems + page_column(page_of(unit, p.page_shift), p.swa_columns);
}

// What a device works on at a time: batches of tiles of one segment, each a part of a page or several whole pages whose
// ids lie next to each other in both tables, as many as fit.
constexpr int32_t kMapTileUnits = 4096;
constexpr int32_t kMapTilePages = 512;
constexpr uint32_t kMapBatchTiles = 64;
constexpr int64_t kMapPitchUnits = kUbBlockBytes / 4;  // each page, and the ids of each tile, start at a block

struct MapTile {
    int32_t pages;
    int32_t page_units;   // of each page
    int32_t pitch_units;  // between the starts of two pages in UB
};

// The tile that starts at `begin` and ends before `end`.
DSV4_HOST_DEVICE constexpr MapTile map_tile(int64_t begin, int64_t end, const MapFullToSwaParams& p) {
    const int64_t page_units = int64_t{1} << p.page_shift;
    const int64_t page = page_of(begin, p.page_shift);
    const int64_t whole_pages =
        min_of((end - begin) >> p.page_shift, p.swa_columns - page_column(page, p.swa_columns));
    if (offset_in_page(begin, p.page_shift) == 0 && whole_pages > 0 && page_units <= kMapTileUnits) {
        const int64_t pitch = max_of(page_units, kMapPitchUnits);
        const int64_t fitting = min_of<int64_t>(kMapTilePages, kMapTileUnits / pitch);
        return MapTile{static_cast<int32_t>(min_of(whole_pages, fitting)), static_cast<int32_t>(page_units),
                       static_cast<int32_t>(pitch)};
    }
    const int64_t page_end = min_of(next_page_start(begin, p.page_shift), end);
    const int64_t units = min_of<int64_t>(page_end - begin, kMapTileUnits);
    return MapTile{1, static_cast<int32_t>(units), static_cast<int32_t>(round_up<int64_t>(units, kMapPitchUnits))};
}

DSV4_HOST_DEVICE constexpr int64_t map_full_to_swa_blocks(const MapFullToSwaParams& p, int64_t cores) {
    return segment_blocks(p.num_segments, p.num_items, cores);
}

}  // namespace dsv4

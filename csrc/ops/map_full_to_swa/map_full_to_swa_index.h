// Keeping the full-to-swa mapping: parameters and index arithmetic, shared by the CPU loops and the device kernel.
#pragma once

#include "common/page_segments.h"

struct MapFullToSwaParams {
    int64_t full_row_elems;  // stride between two rows of the request table
    int64_t swa_row_elems;
    int64_t num_units;     // of all segments; 0: not known
    int64_t num_slots;     // entries of the mapping: slots of the full pool, those of page 0 included
    int32_t columns;       // units that a row of both tables holds
    int32_t max_requests;  // rows of the request tables
    int32_t num_segments;
    int32_t page_shift;
};

namespace dsv4 {

// What is wrong with a segment.
constexpr int32_t kMapValid = 0;
constexpr int32_t kMapRequest = 1;
constexpr int32_t kMapUnits = 2;
constexpr int32_t kMapSource = 3;
constexpr int32_t kMapFullSlot = 4;  // the full table holds no slot of the mapping for a unit

DSV4_HOST_DEVICE constexpr int32_t map_fault(const MapSegment& s, const MapFullToSwaParams& p) {
    if (s.request < 0 || s.request >= p.max_requests) {
        return kMapRequest;
    }
    if (s.begin_unit < 0 || s.begin_unit >= s.end_unit || s.end_unit > p.columns) {
        return kMapUnits;
    }
    return s.source == kMapNothing || s.source == kMapTable ? kMapValid : kMapSource;
}

// Whether `full_slot` can be the slot of `unit`, and the mapping has the whole page. Both pools have a slot a token, so
// the units of a page have neighbouring slots in both.
DSV4_HOST_DEVICE constexpr bool is_mapped_slot(int64_t full_slot, int64_t unit, const MapFullToSwaParams& p) {
    return page_of(full_slot, p.page_shift) > 0 &&
           offset_in_page(full_slot, p.page_shift) == offset_in_page(unit, p.page_shift) &&
           next_page_start(full_slot, p.page_shift) <= p.num_slots;
}

DSV4_HOST_DEVICE constexpr int64_t full_offset_elems(const MapSegment& s, int64_t unit, const MapFullToSwaParams& p) {
    return s.request * p.full_row_elems + unit;
}

DSV4_HOST_DEVICE constexpr int64_t swa_offset_elems(const MapSegment& s, int64_t unit, const MapFullToSwaParams& p) {
    return s.request * p.swa_row_elems + unit;
}

// What a device works on at a time: tiles of one segment, each a part of a page or several whole pages, as many as fit.
constexpr int32_t kMapTileUnits = 4096;
constexpr int32_t kMapTilePages = 512;
constexpr uint32_t kMapBatchTiles = 64;
constexpr int64_t kMapPitchUnits = kUbBlockBytes / 4;  // each page starts at a 32-byte boundary

struct MapTile {
    int32_t pages;
    int32_t page_units;   // of each page
    int32_t pitch_units;  // between the starts of two pages in UB
};

// The tile that starts at `begin` and ends before `end`.
DSV4_HOST_DEVICE constexpr MapTile map_tile(int64_t begin, int64_t end, int32_t page_shift) {
    const int64_t page_units = int64_t{1} << page_shift;
    const int64_t whole_pages = (end - begin) >> page_shift;
    if (offset_in_page(begin, page_shift) == 0 && whole_pages > 0 && page_units <= kMapTileUnits) {
        const int64_t pitch = max_of(page_units, kMapPitchUnits);
        const int64_t fitting = min_of<int64_t>(kMapTilePages, kMapTileUnits / pitch);
        return MapTile{static_cast<int32_t>(min_of(whole_pages, fitting)), static_cast<int32_t>(page_units),
                       static_cast<int32_t>(pitch)};
    }
    const int64_t page_end = min_of(next_page_start(begin, page_shift), end);
    const int64_t units = min_of<int64_t>(page_end - begin, kMapTileUnits);
    return MapTile{1, static_cast<int32_t>(units), static_cast<int32_t>(round_up<int64_t>(units, kMapPitchUnits))};
}

DSV4_HOST_DEVICE constexpr int64_t map_full_to_swa_blocks(const MapFullToSwaParams& p, int64_t cores) {
    return segment_blocks(p.num_segments, 32, p.num_units, cores);
}

}  // namespace dsv4

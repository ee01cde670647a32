// A work list as the allocation ops take it: its segments, and where its parts begin.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "common/page_segments.h"

namespace dsv4 {

// Rows of a list of so many segments; an empty one has none.
constexpr int64_t list_rows(int64_t num_segments) { return num_segments == 0 ? 0 : num_segments + kPartRows; }

// Which entry of what a segment writes its first item stands for: of an output, or of a row of pages or units.
inline int64_t first_entry(const ReserveSegment& s) { return s.out_begin; }

template <typename Segment>
int64_t first_entry(const Segment& s) {
    return s.begin;
}

// Whether the entries that a list's segments write follow each other, within a pool, as the segments do.
template <typename Segment>
constexpr bool kEntriesFollow = std::is_same_v<Segment, ReserveSegment>;

// As many items as take the time of a segment's own.
constexpr int64_t kItemsOfSegment = 8 * kSegmentNs / kEightItemsNs;

// Where the parts of a list begin: about equally long in time, and where possible at an item whose entry in what its
// segment writes is a multiple of 8, which is 32 bytes. segments: with their items_before. parts: kListParts + 1.
template <typename Segment>
void find_parts(const Segment* segments, int64_t num_segments, ListPart* parts) {
    constexpr int64_t kEntries = kUbBlockBytes / 4;
    const auto items_before = [&](int64_t index) { return static_cast<int64_t>(segments[index].items_before); };
    const auto items_of = [&](int64_t index) { return static_cast<int64_t>(segments[index].end - segments[index].begin); };
    const auto time_before = [&](int64_t index) { return items_before(index) + kItemsOfSegment * index; };
    const int64_t last = num_segments - 1;
    const int64_t time = time_before(last) + kItemsOfSegment + items_of(last);
    int64_t index = 0;
    for (int64_t part = 0; part < kListParts; ++part) {
        const int64_t begin = time * part / kListParts;
        while (begin >= time_before(index) + kItemsOfSegment + items_of(index)) {
            ++index;
        }
        const int64_t offset = max_of<int64_t>(0, begin - time_before(index) - kItemsOfSegment);
        const int64_t beyond = (first_entry(segments[index]) + offset) % kEntries;
        const int64_t least = kEntriesFollow<Segment> ? 0 : items_before(index);
        const int64_t item = max_of(items_before(index) + offset - beyond, least);
        int64_t holder = index;
        while (item < items_before(holder)) {
            --holder;
        }
        parts[part] = ListPart{static_cast<int32_t>(holder), static_cast<int32_t>(item)};
    }
    parts[kListParts] = ListPart{static_cast<int32_t>(num_segments), static_cast<int32_t>(items_before(last) + items_of(last))};
}

// Writes a list, whose segments start to count their items at 0, to list_rows() rows. Returns how many items there are.
template <typename Segment>
int64_t write_list(const std::vector<Segment>& segments, int32_t* rows) {
    if (segments.empty()) {
        return 0;
    }
    auto* list = reinterpret_cast<Segment*>(rows);
    int32_t items = 0;
    for (const Segment& segment : segments) {
        *list = segment;
        list->items_before = items;
        items += segment.end - segment.begin;
        ++list;
    }
    int32_t* parts = rows + static_cast<int64_t>(segments.size()) * kSegmentFields;
    std::fill(parts, parts + kPartRows * kSegmentFields, 0);
    find_parts(reinterpret_cast<const Segment*>(rows), static_cast<int64_t>(segments.size()),
               reinterpret_cast<ListPart*>(parts));
    return items;
}

}  // namespace dsv4

#include <algorithm>

#include "cpu/segment_list.h"
#include "ops/map_full_to_swa/map_full_to_swa.h"

namespace dsv4 {
namespace {

constexpr const char* kExpected[] = {"", "a row of the request tables", "a non-empty interval of the tables' columns",
                                     "source 0 (nothing) or 1 (the swa table)"};

// full, swa: int32 [max_requests, row_elems]; mapping: int64 [num_slots].
struct MapPointers {
    const int32_t* full;
    const int32_t* swa;
    int64_t* mapping;
};

void check_segment(const MapSegment& s, int64_t index, const MapPointers& data, const MapFullToSwaParams& p) {
    const int32_t fault = map_fault(s, p);
    TORCH_CHECK_VALUE(fault == kMapValid, "map_full_to_swa: segments[", index, "] is request ", s.request, ", units [",
                      s.begin_unit, ", ", s.end_unit, "), source ", s.source, ", expected ", kExpected[fault]);
    for (int64_t unit = s.begin_unit; unit < s.end_unit; unit = next_page_start(unit, p.page_shift)) {
        const int32_t slot = data.full[full_offset_elems(s, unit, p)];
        TORCH_CHECK_VALUE(is_mapped_slot(slot, unit, p), "map_full_to_swa: full_table[", s.request, ", ", unit, "] is ",
                          slot, ", expected the slot of a page that the request owns, below ", p.num_slots);
    }
}

void map_segment(const MapSegment& s, const MapPointers& data, const MapFullToSwaParams& p) {
    for (int64_t begin = s.begin_unit; begin < s.end_unit; begin = next_page_start(begin, p.page_shift)) {
        const int64_t end = min_of<int64_t>(next_page_start(begin, p.page_shift), s.end_unit);
        int64_t* entries = data.mapping + data.full[full_offset_elems(s, begin, p)];
        if (s.source == kMapTable) {
            const int32_t* slots = data.swa + swa_offset_elems(s, begin, p);
            std::copy(slots, slots + (end - begin), entries);
        } else {
            std::fill(entries, entries + (end - begin), 0);
        }
    }
}

void run(const MapFullToSwaParams& p, const at::Tensor& full_table, const at::Tensor& swa_table,
         const at::Tensor& segments, const at::Tensor& full_to_swa) {
    const MapPointers data{full_table.const_data_ptr<int32_t>(), swa_table.const_data_ptr<int32_t>(),
                           full_to_swa.mutable_data_ptr<int64_t>()};
    cpu::carry_out_segments<MapSegment>(
        "map_full_to_swa", segments, [&](const MapSegment& s, int64_t i) { check_segment(s, i, data, p); },
        [&](const MapSegment& s) { map_segment(s, data, p); });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_map_full_to_swa<&run>(m); }

}  // namespace dsv4

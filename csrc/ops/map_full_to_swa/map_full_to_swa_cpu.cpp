#include <algorithm>
#include <numeric>

#include "cpu/segment_list.h"
#include "ops/map_full_to_swa/map_full_to_swa.h"

namespace dsv4 {
namespace {

constexpr const char* kExpected[] = {"", "a row of the page tables",
                                     "a non-empty interval of units that the tables have columns for",
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
                      s.begin, ", ", s.end, "), source ", s.source, ", expected ", kExpected[fault]);
    for (int64_t unit = s.begin; unit < s.end; unit = next_page_start(unit, p.page_shift)) {
        const int32_t page = data.full[full_entry_elems(s, unit, p)];
        TORCH_CHECK_VALUE(is_mapped_page(page, p), "map_full_to_swa: page ", page_of(unit, p.page_shift),
                          " of request ", s.request, " in pool full is ", page,
                          ", expected a page that the request owns, with all slots below ", p.num_slots);
    }
}

void map_segment(const MapSegment& s, const MapPointers& data, const MapFullToSwaParams& p) {
    for (int64_t begin = s.begin; begin < s.end; begin = next_page_start(begin, p.page_shift)) {
        const int64_t units = min_of<int64_t>(next_page_start(begin, p.page_shift), s.end) - begin;
        const int32_t full_page = data.full[full_entry_elems(s, begin, p)];
        int64_t* entries = data.mapping + slot_of(full_page, begin, p.page_shift);
        const int32_t swa_page = s.source == kMapTable ? data.swa[swa_entry_elems(s, begin, p)] : 0;
        if (swa_page > 0) {
            std::iota(entries, entries + units, slot_of(swa_page, begin, p.page_shift));
        } else {
            std::fill(entries, entries + units, 0);
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

#include <algorithm>

#include "cpu/segment_list.h"
#include "ops/release_pages/release_pages.h"

namespace dsv4 {
namespace {

constexpr const char* kExpected[] = {"", "0 <= pool < 6", "a row of the request tables",
                                     "a non-empty interval of the table's columns",
                                     "ring position -1, or whole pages and a position in the ring"};

void check_segment(const ReleaseSegment& s, int64_t index, const std::array<int32_t*, kNumPools>& tables,
                   const ReleasePagesParams& p) {
    const int32_t fault = release_fault(s, p);
    TORCH_CHECK_VALUE(fault == kReleaseValid, "release_pages: segments[", index, "] is pool ", s.pool, ", request ",
                      s.request, ", units [", s.begin_unit, ", ", s.end_unit, "), ring position ", s.ring_position,
                      ", expected ", kExpected[fault]);
    if (s.ring_position == kKeepPage) {
        return;
    }
    for (int64_t unit = s.begin_unit; unit < s.end_unit; unit = next_page_start(unit, p.page_shift)) {
        const int32_t slot = tables[s.pool][table_offset_elems(s, unit, p)];
        TORCH_CHECK_VALUE(page_of(slot, p.page_shift) > 0, "release_pages: ", kTableNames[s.pool], "[", s.request, ", ",
                          unit, "] is ", slot,
                          ", expected the slot of a page that the request owns (did something else write it?)");
    }
}

// tables: [max_requests, row_elems] of each pool; free_pages: the rings.
void release_segment(const ReleaseSegment& s, const std::array<int32_t*, kNumPools>& tables, int32_t* free_pages,
                     const ReleasePagesParams& p) {
    int32_t* row = tables[s.pool] + table_offset_elems(s, 0, p);
    if (s.ring_position != kKeepPage) {
        for (int64_t unit = s.begin_unit; unit < s.end_unit; unit = next_page_start(unit, p.page_shift)) {
            free_pages[freed_page_offset_elems(s, unit, p)] = static_cast<int32_t>(page_of(row[unit], p.page_shift));
        }
    }
    std::fill(row + s.begin_unit, row + s.end_unit, 0);
}

void run(const ReleasePagesParams& p, const PoolTables& tables, const at::Tensor& free_pages,
         const at::Tensor& segments) {
    std::array<int32_t*, kNumPools> table_data;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        table_data[pool] = tables[pool].mutable_data_ptr<int32_t>();
    }
    int32_t* rings = free_pages.mutable_data_ptr<int32_t>();
    cpu::carry_out_segments<ReleaseSegment>(
        "release_pages", segments, [&](const ReleaseSegment& s, int64_t i) { check_segment(s, i, table_data, p); },
        [&](const ReleaseSegment& s) { release_segment(s, table_data, rings, p); });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_release_pages<&run>(m); }

}  // namespace dsv4

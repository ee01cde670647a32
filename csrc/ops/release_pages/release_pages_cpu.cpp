#include "cpu/segment_list.h"
#include "ops/release_pages/release_pages.h"

namespace dsv4 {
namespace {

constexpr const char* kExpected[] = {"", "a pool that exists, 0 <= pool < 6", "a row of the page tables",
                                     "a non-empty interval of pages that the table has columns for",
                                     "ring position -1, or a position in the ring and no more pages than it has"};

using TablePointers = std::array<int32_t*, kNumPools>;  // [max_requests, row_elems] of each pool

void check_segment(const ReleaseSegment& s, int64_t index, const TablePointers& tables, const ReleasePagesParams& p) {
    const int32_t fault = release_fault(s, p);
    TORCH_CHECK_VALUE(fault == kReleaseValid, "release_pages: segments[", index, "] is pool ", s.pool, ", request ",
                      s.request, ", pages [", s.begin, ", ", s.end, "), ring position ", s.ring_position,
                      ", expected ", kExpected[fault]);
    if (s.ring_position != kKeepPage) {
        cpu::check_owned_pages("release_pages", s.pool, s.request, s.begin, s.end, tables[s.pool], p.pools);
    }
}

// free_pages: the rings.
void release_segment(const ReleaseSegment& s, const TablePointers& tables, int32_t* free_pages,
                     const ReleasePagesParams& p) {
    for (int64_t page = s.begin; page < s.end; ++page) {
        int32_t& entry = tables[s.pool][page_entry_elems(s.pool, s.request, page, p.pools)];
        if (s.ring_position != kKeepPage) {
            free_pages[freed_page_elems(s, page, p.pools)] = entry;
        }
        entry = 0;
    }
}

void run(const ReleasePagesParams& p, const PageTables& tables, const at::Tensor& free_pages,
         const at::Tensor& segments) {
    TablePointers table_data;
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

#include <algorithm>

#include "cpu/segment_list.h"
#include "ops/reserve_extend/reserve_extend.h"

namespace dsv4 {
namespace {

constexpr const char* kExpected[] = {"",
                                     "a pool that exists, 0 <= pool < 6",
                                     "a row of the page tables",
                                     "a non-empty interval of units that the table has columns for",
                                     "an interval of the pool's output",
                                     "source 0 (keep), 1 (take pages) or 2 (no slots)",
                                     "an interval that starts a page, and pages in the ring"};

// tables: [max_requests, row_elems] of each pool; slots: [num_slots] of each pool.
struct ReservePointers {
    std::array<int32_t*, kNumPools> tables;
    std::array<int32_t*, kNumPools> slots;
    const int32_t* free_pages;
};

void check_segment(const ReserveSegment& s, int64_t index, const ReservePointers& data, const ReserveExtendParams& p) {
    const int32_t fault = segment_fault(s, p);
    TORCH_CHECK_VALUE(fault == kSegmentValid, "reserve_extend: segments[", index, "] is pool ", s.pool, ", request ",
                      s.request, ", units [", s.begin, ", ", s.end, "), source ", s.source, ", ring position ",
                      s.ring_position, ", output ", s.out_begin, ", expected ", kExpected[fault]);
    if (s.source == kKeepSlots) {
        const int32_t shift = p.pools.page_shift[s.pool];
        cpu::check_owned_pages("reserve_extend", s.pool, s.request, page_of(s.begin, shift), pages_for(s.end, shift),
                               data.tables[s.pool], p.pools);
    }
}

void reserve_segment(const ReserveSegment& s, const ReservePointers& data, const ReserveExtendParams& p) {
    int32_t* out = data.slots[s.pool] + s.out_begin;
    if (s.source == kNoSlots) {
        std::fill(out, out + (s.end - s.begin), 0);
        return;
    }
    const int32_t shift = p.pools.page_shift[s.pool];
    for (int64_t begin = s.begin; begin < s.end; begin = next_page_start(begin, shift)) {
        const int64_t end = min_of<int64_t>(next_page_start(begin, shift), s.end);
        int32_t& entry = data.tables[s.pool][unit_entry_elems(s, begin, p.pools)];
        if (s.source == kTakePages) {
            entry = data.free_pages[free_page_elems(s, begin, p.pools)];
        }
        const auto first_slot = static_cast<int32_t>(slot_of(entry, begin, shift));
        for (int32_t i = 0; i < end - begin; ++i) {
            *out++ = first_slot + i;
        }
    }
}

void run(const ReserveExtendParams& p, const PageTables& tables, const at::Tensor& free_pages,
         const at::Tensor& segments, const ReservedSlots& slots) {
    ReservePointers data;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        data.tables[pool] = tables[pool].mutable_data_ptr<int32_t>();
        data.slots[pool] = slots[pool].mutable_data_ptr<int32_t>();
    }
    data.free_pages = free_pages.const_data_ptr<int32_t>();
    cpu::carry_out_segments<ReserveSegment>(
        "reserve_extend", segments, [&](const ReserveSegment& s, int64_t i) { check_segment(s, i, data, p); },
        [&](const ReserveSegment& s) { reserve_segment(s, data, p); });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_reserve_extend<&run>(m); }

}  // namespace dsv4

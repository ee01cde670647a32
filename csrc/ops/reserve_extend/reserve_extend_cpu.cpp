#include <cstring>

#include "cpu/segment_list.h"
#include "ops/reserve_extend/reserve_extend.h"

namespace dsv4 {
namespace {

constexpr const char* kExpected[] = {"",
                                     "0 <= pool < 6",
                                     "a row of the request tables",
                                     "a non-empty interval of the table's columns",
                                     "an interval of the pool's output",
                                     "source 0 (keep), 1 (join a page) or 2 (take pages)",
                                     "an interval of one started page (source 1) or of whole pages in the ring (2)"};

// tables: [max_requests, row_elems] of each pool; slots: [num_slots] of each pool.
struct ReservePointers {
    std::array<int32_t*, kNumPools> tables;
    std::array<int32_t*, kNumPools> slots;
    const int32_t* free_pages;
};

void check_segment(const ReserveSegment& s, int64_t index, const ReservePointers& data, const ReserveExtendParams& p) {
    const int32_t fault = segment_fault(s, p);
    TORCH_CHECK_VALUE(fault == kSegmentValid, "reserve_extend: segments[", index, "] is pool ", s.pool, ", request ",
                      s.request, ", units [", s.begin_unit, ", ", s.end_unit, "), source ", s.source,
                      ", ring position ", s.ring_position, ", output ", s.out_begin, ", expected ", kExpected[fault]);
    if (s.source == kJoinPage) {
        const int32_t slot = data.tables[s.pool][table_offset_elems(s, s.begin_unit - 1, p)];
        TORCH_CHECK_VALUE(page_of(slot, p.page_shift) > 0, "reserve_extend: ", kTableNames[s.pool], "[", s.request,
                          ", ", s.begin_unit - 1, "] is ", slot,
                          ", expected the slot of a page that the request owns (did something else write it?)");
    }
}

// Units that share a page have consecutive slots.
void write_page(const ReserveSegment& s, int64_t begin, int64_t end, int64_t page, const ReservePointers& data,
                const ReserveExtendParams& p) {
    int32_t* table = data.tables[s.pool] + table_offset_elems(s, begin, p);
    int32_t* out = data.slots[s.pool] + slot_offset_elems(s, begin);
    const int32_t first_slot = static_cast<int32_t>(slot_of(page, begin, p.page_shift));
    for (int32_t i = 0; i < end - begin; ++i) {
        table[i] = first_slot + i;
        out[i] = first_slot + i;
    }
}

void reserve_segment(const ReserveSegment& s, const ReservePointers& data, const ReserveExtendParams& p) {
    if (s.source == kKeepSlots) {
        std::memcpy(data.slots[s.pool] + s.out_begin, data.tables[s.pool] + table_offset_elems(s, s.begin_unit, p),
                    (s.end_unit - s.begin_unit) * sizeof(int32_t));
    } else if (s.source == kJoinPage) {
        const int32_t slot_before = data.tables[s.pool][table_offset_elems(s, s.begin_unit - 1, p)];
        write_page(s, s.begin_unit, s.end_unit, page_of(slot_before, p.page_shift), data, p);
    } else {
        for (int64_t begin = s.begin_unit; begin < s.end_unit; begin = next_page_start(begin, p.page_shift)) {
            const int64_t end = min_of<int64_t>(next_page_start(begin, p.page_shift), s.end_unit);
            write_page(s, begin, end, data.free_pages[free_page_offset_elems(s, begin, p)], data, p);
        }
    }
}

void run(const ReserveExtendParams& p, const PoolTables& tables, const at::Tensor& free_pages,
         const at::Tensor& segments, const PoolSlots& slots) {
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

#include <cstring>

#include "cpu/segment_list.h"
#include "ops/share_pages/share_pages.h"

namespace dsv4 {
namespace {

constexpr const char* kExpected[] = {"", "0 <= pool < 6", "two different rows of the request tables",
                                     "a non-empty interval of the table's columns",
                                     "ring position -1, or the start of one page, a position in the ring and an entry "
                                     "of the lists of pages"};

// tables: [max_requests, row_elems] of each pool; pages: [num_copies].
struct SharePointers {
    std::array<int32_t*, kNumPools> tables;
    const int32_t* free_pages;
    int32_t* source_pages;
    int32_t* destination_pages;
};

void check_segment(const ShareSegment& s, int64_t index, const SharePointers& data, const SharePagesParams& p) {
    const int32_t fault = share_fault(s, p);
    TORCH_CHECK_VALUE(fault == kShareValid, "share_pages: segments[", index, "] is pool ", s.pool, ", request ",
                      s.request, ", units [", s.begin_unit, ", ", s.end_unit, "), source ", s.source,
                      ", ring position ", s.ring_position, ", copy ", s.copy, ", expected ", kExpected[fault]);
    for (int64_t unit = s.begin_unit; unit < s.end_unit; unit = next_page_start(unit, p.page_shift)) {
        const int32_t slot = data.tables[s.pool][source_offset_elems(s, unit, p)];
        TORCH_CHECK_VALUE(page_of(slot, p.page_shift) > 0, "share_pages: ", kTableNames[s.pool], "[", s.source, ", ",
                          unit, "] is ", slot,
                          ", expected the slot of a page that the request owns (did something else write it?)");
    }
}

void share_segment(const ShareSegment& s, const SharePointers& data, const SharePagesParams& p) {
    const int32_t* from = data.tables[s.pool] + source_offset_elems(s, s.begin_unit, p);
    int32_t* to = data.tables[s.pool] + target_offset_elems(s, s.begin_unit, p);
    const int32_t units = s.end_unit - s.begin_unit;
    if (!is_copy(s)) {
        std::memcpy(to, from, units * sizeof(int32_t));
        return;
    }
    const int32_t page = data.free_pages[copy_page_offset_elems(s, p)];
    data.source_pages[s.copy] = static_cast<int32_t>(page_of(from[0], p.page_shift));
    data.destination_pages[s.copy] = page;
    const int32_t first_slot = static_cast<int32_t>(slot_of(page, s.begin_unit, p.page_shift));
    for (int32_t i = 0; i < units; ++i) {
        to[i] = first_slot + i;
    }
}

void run(const SharePagesParams& p, const PoolTables& tables, const at::Tensor& free_pages, const at::Tensor& segments,
         const CopiedPages& pages) {
    SharePointers data{{},
                       free_pages.const_data_ptr<int32_t>(),
                       pages.source.mutable_data_ptr<int32_t>(),
                       pages.destination.mutable_data_ptr<int32_t>()};
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        data.tables[pool] = tables[pool].mutable_data_ptr<int32_t>();
    }
    cpu::carry_out_segments<ShareSegment>(
        "share_pages", segments, [&](const ShareSegment& s, int64_t i) { check_segment(s, i, data, p); },
        [&](const ShareSegment& s) { share_segment(s, data, p); });
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_share_pages<&run>(m); }

}  // namespace dsv4

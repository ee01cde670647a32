#include "cpu/segment_list.h"
#include "ops/share_pages/share_pages.h"

namespace dsv4 {
namespace {

constexpr const char* kExpected[] = {"", "a pool that exists, 0 <= pool < 6", "two different rows of the page tables",
                                     "a non-empty interval of pages that the table has columns for",
                                     "ring position -1, or one page, a position in the ring and an entry of the lists of "
                                     "pages"};

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
                      s.request, ", pages [", s.begin, ", ", s.end, "), source ", s.source, ", ring position ",
                      s.ring_position, ", copy ", s.copy, ", expected ", kExpected[fault]);
    cpu::check_owned_pages("share_pages", s.pool, s.source, s.begin, s.end, data.tables[s.pool], p.pools);
}

void share_segment(const ShareSegment& s, const SharePointers& data, const SharePagesParams& p) {
    int32_t* table = data.tables[s.pool];
    if (is_copy(s)) {
        const int32_t page = data.free_pages[copy_page_elems(s, p.pools)];
        data.source_pages[s.copy] = table[source_elems(s, s.begin, p.pools)];
        data.destination_pages[s.copy] = page;
        table[target_elems(s, s.begin, p.pools)] = page;
        return;
    }
    for (int64_t page = s.begin; page < s.end; ++page) {
        table[target_elems(s, page, p.pools)] = table[source_elems(s, page, p.pools)];
    }
}

void run(const SharePagesParams& p, const PageTables& tables, const at::Tensor& free_pages, const at::Tensor& segments,
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

#include "torch/free_rings.h"

#include <limits>

#include "common/page_segments.h"
#include "torch/check.h"

namespace dsv4 {

void check::pool_list(const char* op, const char* name, at::IntArrayRef counts) {
    TORCH_CHECK_VALUE(counts.size() == kNumPools, op, ": ", name, " has ", counts.size(), " entries, expected ",
                      kNumPools, " (one a pool)");
    for (const int64_t count : counts) {
        TORCH_CHECK_VALUE(count >= 0 && count <= std::numeric_limits<int32_t>::max(), op, ": ", name, " is ", counts,
                          ", expected counts of 0 or more within int32");
    }
}

void check_segments(const char* op, const at::Tensor& segments, const at::Tensor& full_table) {
    check::dim(op, "segments", segments, 2);
    check::dtype(op, "segments", segments, {at::kInt});
    check::same_device(op, "segments", segments, kTableNames[kFull], full_table);
    check::shape(op, "segments", segments, {segments.size(0), kSegmentFields});
    check::contiguous(op, "segments", segments);
}

int64_t check_num_units(const char* op, int64_t num_units) {
    check::at_least(op, "num_units", num_units, 0);
    return num_units;
}

void check_free_rings(const char* op, const at::Tensor& free_pages, at::IntArrayRef num_pages, const PoolTables& tables,
                      int32_t (&ring_pages)[kNumPools], int32_t (&ring_begin)[kNumPools]) {
    check::pool_list(op, "num_pages", num_pages);
    int64_t total_pages = 0;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        ring_pages[pool] = static_cast<int32_t>(num_pages[pool]);
        ring_begin[pool] = static_cast<int32_t>(total_pages);
        total_pages += num_pages[pool];
    }
    check::dim(op, "free_pages", free_pages, 1);
    check::dtype(op, "free_pages", free_pages, {at::kInt});
    check::same_device(op, "free_pages", free_pages, kTableNames[kFull], tables[kFull]);
    check::shape(op, "free_pages", free_pages, {total_pages});
    check::contiguous(op, "free_pages", free_pages);
}

}  // namespace dsv4

#include "torch/paged_pools.h"

#include <algorithm>
#include <limits>
#include <string>

#include "torch/check.h"
#include "torch/pool_addresses.h"

namespace dsv4 {
namespace {

constexpr int64_t kMostCount = std::numeric_limits<int32_t>::max();

// Length of each ring and where it starts.
void check_free_rings(const char* op, const at::Tensor& free_pages, at::IntArrayRef num_pages, PagedPools& p) {
    check::pool_list(op, "num_pages", num_pages);
    int64_t total_pages = 0;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        p.num_pages[pool] = static_cast<int32_t>(num_pages[pool]);
        p.ring_begin[pool] = static_cast<int32_t>(total_pages);
        total_pages += num_pages[pool];
    }
    check::dim(op, "free_pages", free_pages, 1);
    check::dtype(op, "free_pages", free_pages, {at::kInt});
    check::shape(op, "free_pages", free_pages, {total_pages});
    check::contiguous(op, "free_pages", free_pages);
}

}  // namespace

void check::pool_list(const char* op, const char* name, at::IntArrayRef counts) {
    TORCH_CHECK_VALUE(counts.size() == kNumPools, op, ": ", name, " has ", counts.size(), " entries, expected ",
                      kNumPools, " (one a pool)");
    for (const int64_t count : counts) {
        TORCH_CHECK_VALUE(count >= 0 && count <= kMostCount, op, ": ", name, " is ", counts,
                          ", expected counts of 0 or more within int32");
    }
}

int64_t check::segments(const char* op, const at::Tensor& segments, const char* on_name, const at::Tensor& on) {
    check::dim(op, "segments", segments, 2);
    check::dtype(op, "segments", segments, {at::kInt});
    check::same_device(op, "segments", segments, on_name, on);
    check::shape(op, "segments", segments, {segments.size(0), kSegmentFields});
    check::contiguous(op, "segments", segments);
    const int64_t rows = segments.size(0);
    TORCH_CHECK_VALUE(rows == 0 || rows > kPartRows, op, ": segments has ", rows, " rows, expected 0, or more than ",
                      kPartRows, ": behind the segments, as many say where the parts of the list begin");
    return rows == 0 ? 0 : rows - kPartRows;
}

int64_t check::num_items(const char* op, int64_t num_items) {
    check::at_least(op, "num_items", num_items, 0);
    return num_items;
}

int32_t check::page_shift(const char* op, const char* pool, int64_t page_size) {
    TORCH_CHECK_VALUE(is_power_of_two(page_size) && page_size <= kMostCount, op, ": page size of pool ", pool, " is ",
                      page_size, ", expected a power of two from 1 up");
    return log2_of(page_size);
}

int64_t check_page_table(const char* op, const char* name, const at::Tensor& table, const char* on_name,
                         const at::Tensor& on) {
    check::dim(op, name, table, 2);
    check::dtype(op, name, table, {at::kInt});
    check::same_device(op, name, table, on_name, on);
    check::contiguous_rows(op, name, table);
    TORCH_CHECK_VALUE(table.size(0) <= kMostCount && table.size(1) >= 1 && table.size(1) <= kMostCount, op, ": ", name,
                      " has shape ", table.sizes(), ", expected at least one column, and no more rows or columns than ",
                      kMostCount);
    TORCH_CHECK_VALUE(table.size(0) <= 1 || table.stride(0) >= table.size(1), op, ": ", name, " has strides ",
                      table.strides(), ", expected rows that do not overlap");
    return table.size(0) <= 1 ? table.size(1) : table.stride(0);
}

PagedArguments check_paged_pools(const char* op, at::TensorList tables, at::IntArrayRef page_sizes,
                                 const at::Tensor& free_pages, at::IntArrayRef num_pages) {
    PagedArguments result{};
    PagedPools& p = result.pools;
    check_free_rings(op, free_pages, num_pages, p);
    check::pool_list(op, "page_sizes", page_sizes);
    const auto count = static_cast<size_t>(
        std::count_if(page_sizes.begin(), page_sizes.end(), [](int64_t page_size) { return page_size != 0; }));
    TORCH_CHECK_VALUE(tables.size() == count, op, ": tables has ", tables.size(), " entries, expected ", count,
                      ", one for each pool with a page size");
    size_t next = 0;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        if (page_sizes[pool] == 0) {
            result.tables[pool] = free_pages;
            continue;
        }
        const at::Tensor& table = tables[next++];
        const std::string name = std::string("table of pool ") + kPoolNames[pool];
        p.row_elems[pool] = check_page_table(op, name.c_str(), table, "free_pages", free_pages);
        p.columns[pool] = static_cast<int32_t>(table.size(1));
        p.page_shift[pool] = check::page_shift(op, kPoolNames[pool], page_sizes[pool]);
        TORCH_CHECK_VALUE(table.size(0) == tables[0].size(0), op, ": ", name, " has ", table.size(0),
                          " rows, expected ", tables[0].size(0), " like the first one");
        p.max_requests = static_cast<int32_t>(table.size(0));
        result.tables[pool] = table;
    }
    return result;
}

}  // namespace dsv4

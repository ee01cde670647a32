#include "ops/extend_from_lists/extend_from_lists.h"

#include <torch/library.h>

#include <limits>

#include "torch/check.h"
#include "torch/empty_tensors.h"
#include "torch/paged_pools.h"

namespace dsv4 {
namespace {

// Returns whether the values are int64.
int32_t check_row_values(const char* name, const at::Tensor& values, const at::Tensor& rows,
                         const char* rows_name = "req_pool_indices") {
    check::dim(kExtendOp, name, values, 1);
    check::integer(kExtendOp, name, values);
    check::same_device(kExtendOp, name, values, rows_name, rows);
    check::shape(kExtendOp, name, values, rows.sizes());
    check::contiguous(kExtendOp, name, values);
    return values.scalar_type() == at::kLong;
}

// Returns the number of entries.
int64_t check_flat(const char* name, const at::Tensor& values, at::ScalarType dtype, const at::Tensor& on) {
    check::dim(kExtendOp, name, values, 1);
    check::dtype(kExtendOp, name, values, {dtype});
    check::same_device(kExtendOp, name, values, "req_pool_indices", on);
    check::contiguous(kExtendOp, name, values);
    return values.size(0);
}

int64_t check_count(const char* name, int64_t count, int64_t most) {
    TORCH_CHECK_VALUE(count >= 0 && count <= most, kExtendOp, ": ", name, " is ", count, ", expected 0 to ", most);
    return count;
}

constexpr int64_t kMostSlots = std::numeric_limits<int32_t>::max();

void check_page_sizes(ExtendFromListsParams& p, int64_t page_size, int64_t c128_page_size,
                      std::optional<int64_t> swa_tail) {
    p.page_shift = check::page_shift(kExtendOp, "full", page_size);
    TORCH_CHECK_VALUE(page_size >= kRatioC4, kExtendOp, ": page_size is ", page_size, ", expected at least ", kRatioC4,
                      ", the tokens of a group");
    p.c128_page_shift = check::page_shift(kExtendOp, "c128", c128_page_size);
    p.swa_tail = std::numeric_limits<int64_t>::max();
    if (swa_tail.has_value()) {
        p.swa_tail = check_count("swa_tail", *swa_tail, kMostSlots);
    }
}

}  // namespace

ExtendFromListsParams check_extend_needs(const std::optional<at::Tensor>& prefix_lens, const at::Tensor& seq_lens,
                                         int64_t page_size, int64_t c128_page_size, std::optional<int64_t> swa_tail) {
    ExtendFromListsParams p{};
    p.seq_is_int64 = check_row_values("seq_lens", seq_lens, seq_lens, "seq_lens");
    p.prefix_is_int64 =
        prefix_lens.has_value() ? check_row_values("prefix_lens", *prefix_lens, seq_lens, "seq_lens") : kOneToken;
    p.num_rows = seq_lens.size(0);
    check_page_sizes(p, page_size, c128_page_size, swa_tail);
    return p;
}

ExtendFromListsParams check_extend_from_lists(const ExtendTensors& tensors, int64_t num_tokens, int64_t num_c4,
                                              int64_t num_c128, int64_t num_c128_pages, int64_t page_size,
                                              int64_t c128_page_size, std::optional<int64_t> swa_tail) {
    const at::Tensor& requests = tensors.req_pool_indices;
    ExtendFromListsParams p{};
    p.request_is_int64 = check_row_values("req_pool_indices", requests, requests);
    p.prefix_is_int64 =
        tensors.prefix_lens.has_value() ? check_row_values("prefix_lens", *tensors.prefix_lens, requests) : kOneToken;
    p.seq_is_int64 = check_row_values("seq_lens", tensors.seq_lens, requests);
    p.last_is_int64 = check_row_values("last_loc", tensors.last_loc, requests);
    p.num_rows = requests.size(0);
    p.full_pages = check_flat("full_pages", tensors.full_pages, at::kLong, requests);
    p.swa_pages = check_flat("swa_pages", tensors.swa_pages, at::kLong, requests);
    p.c128_pages = check_flat("c128_pages", tensors.c128_pages, at::kLong, requests);
    p.num_slots = check_flat("full_to_swa", tensors.full_to_swa, at::kLong, requests);
    p.num_owners = check_flat("c128_owners", tensors.c128_owners, at::kInt, requests);
    p.table_row_elems = check_page_table(kExtendOp, "c128_table", tensors.c128_table, "req_pool_indices", requests);
    p.max_requests = tensors.c128_table.size(0);
    p.columns = static_cast<int32_t>(tensors.c128_table.size(1));
    TORCH_CHECK_VALUE(p.num_slots <= kMostSlots, kExtendOp, ": full_to_swa has ", p.num_slots,
                      " entries, expected at most ", kMostSlots, ", the slots within int32");
    p.num_tokens = check_count("num_tokens", num_tokens, p.num_rows == 0 ? 0 : kMostSlots);
    p.num_c4 = check_count("num_c4", num_c4, num_tokens);
    p.num_c128 = check_count("num_c128", num_c128, num_tokens);
    p.num_replaced = check_count("num_c128_pages", num_c128_pages, num_c128);
    check_page_sizes(p, page_size, c128_page_size, swa_tail);
    return p;
}

ExtendedSlots empty_extended_slots(const ExtendFromListsParams& p, const at::Tensor& on) {
    const auto slots = [&](at::ScalarType dtype, int64_t entries) {
        return empty_tensor(dtype, {entries}, on.device());
    };
    return ExtendedSlots{slots(at::kInt, p.num_tokens), slots(at::kLong, p.num_tokens), slots(at::kInt, p.num_c4),
                         slots(at::kInt, p.num_c128), slots(at::kInt, p.num_replaced)};
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "extend_from_lists(Tensor req_pool_indices, Tensor? prefix_lens, Tensor seq_lens, Tensor last_loc,"
        " Tensor full_pages, Tensor swa_pages, Tensor c128_pages, Tensor(a!) full_to_swa, Tensor(b!) c128_table,"
        " Tensor(c!) c128_owners, int num_tokens, int num_c4, int num_c128, int num_c128_pages, int page_size, int "
        "c128_page_size,"
        " int? swa_tail=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
    m.def(
        "extend_from_lists.needs(Tensor? prefix_lens, Tensor seq_lens, int page_size, int c128_page_size,"
        " int? swa_tail=None) -> (SymInt num_tokens, SymInt num_c4, SymInt num_c128, SymInt full_pages,"
        " SymInt swa_pages, SymInt c128_pages, Tensor new_columns)");
}

}  // namespace dsv4

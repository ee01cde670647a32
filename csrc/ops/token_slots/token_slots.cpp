#include "ops/token_slots/token_slots.h"

#include <string>

#include "torch/check.h"

namespace dsv4 {
namespace {

std::string element(const char* list, size_t i) { return std::string(list) + "[" + std::to_string(i) + "]"; }

// One number for each request; returns whether they are int64.
int32_t check_per_request(const std::string& name, const at::Tensor& values, int64_t minimum, const at::Tensor& on) {
    check::dim(kTokenSlotsOp, name.c_str(), values, 1);
    check::same_device(kTokenSlotsOp, name.c_str(), values, "cu_seqlens", on);
    TORCH_CHECK_VALUE(values.size(0) >= minimum, kTokenSlotsOp, ": ", name, " has ", values.size(0),
                      " entries, expected at least ", minimum, " for num_reqs");
    check::integer(kTokenSlotsOp, name.c_str(), values);
    check::contiguous(kTokenSlotsOp, name.c_str(), values);
    return values.scalar_type() == at::kLong;
}

void check_count(const char* name, size_t given, const TokenSlotsArguments& a) {
    TORCH_CHECK_VALUE(given == a.page_tables.size(), kTokenSlotsOp, ": ", name, " has ", given, " entries, expected ",
                      a.page_tables.size(), " like page_tables");
}

int32_t check_power(const char* list, at::IntArrayRef values, size_t i) {
    TORCH_CHECK_VALUE(is_power_of_two(values[i]) && values[i] <= kMostSlot, kTokenSlotsOp, ": ", element(list, i),
                      " is ", values[i], ", expected a power of two below 2**31");
    return log2_of(values[i]);
}

void check_table(const TokenSlotsArguments& a, size_t i, TokenSlotsTable& table, TokenSlotsTensors& t) {
    const at::Tensor& pages = a.page_tables[i];
    const std::string name = element("page_tables", i);
    check::dim(kTokenSlotsOp, name.c_str(), pages, 2);
    check::same_device(kTokenSlotsOp, name.c_str(), pages, "cu_seqlens", a.cu_seqlens);
    TORCH_CHECK_VALUE(pages.size(0) >= a.num_reqs, kTokenSlotsOp, ": ", name, " has ", pages.size(0),
                      " rows, expected at least ", a.num_reqs, " for num_reqs");
    check::integer(kTokenSlotsOp, name.c_str(), pages);
    check::contiguous_rows(kTokenSlotsOp, name.c_str(), pages);
    TORCH_CHECK_VALUE(pages.size(1) <= kMostSlot, kTokenSlotsOp, ": ", name, " has ", pages.size(1),
                      " columns, expected fewer than 2**31");
    table.columns = pages.size(1);
    table.row_elems = pages.stride(0);
    table.is_int64 = pages.scalar_type() == at::kLong;
    table.page_shift = check_power("page_sizes", a.page_sizes, i);
    table.ratio_shift = check_power("ratios", a.ratios, i);
    TORCH_CHECK_VALUE(a.lowest_pages[i] >= 0 && a.lowest_pages[i] <= kMostSlot, kTokenSlotsOp, ": ",
                      element("lowest_pages", i), " is ", a.lowest_pages[i], ", expected 0 to ", kMostSlot);
    table.lowest_page = static_cast<int32_t>(a.lowest_pages[i]);
    const int64_t given = a.first_pages_of[i];
    TORCH_CHECK_VALUE(given >= -1 && given < static_cast<int64_t>(a.first_pages.size()), kTokenSlotsOp, ": ",
                      element("first_pages_of", i), " is ", given,
                      ", expected -1 or an index of first_pages, which has ", a.first_pages.size());
    if (given >= 0) {
        const at::Tensor& first_pages = a.first_pages[static_cast<size_t>(given)];
        table.has_first_pages = 1;
        table.first_pages_is_int64 = check_per_request("first_pages of " + name, first_pages, a.num_reqs, a.cu_seqlens);
        t.first_pages[i] = first_pages;
    }
}

void check_output(const TokenSlotsArguments& a, size_t i, int64_t num_tokens) {
    const std::string name = element("slots", i);
    check::dim(kTokenSlotsOp, name.c_str(), a.slots[i], 1);
    check::dtype(kTokenSlotsOp, name.c_str(), a.slots[i], {at::kLong});
    check::same_device(kTokenSlotsOp, name.c_str(), a.slots[i], "cu_seqlens", a.cu_seqlens);
    check::shape(kTokenSlotsOp, name.c_str(), a.slots[i], {num_tokens});
    check::contiguous(kTokenSlotsOp, name.c_str(), a.slots[i]);
}

}  // namespace

TokenSlotsParams check_token_slots(const TokenSlotsArguments& a, TokenSlotsTensors& t) {
    TokenSlotsParams p{};
    check::at_least(kTokenSlotsOp, "num_reqs", a.num_reqs, 0);
    const size_t count = a.page_tables.size();
    TORCH_CHECK_VALUE(count <= static_cast<size_t>(kMaxTokenSlotTables), kTokenSlotsOp, ": page_tables has ", count,
                      " tables, expected at most ", kMaxTokenSlotTables);
    check_count("first_pages_of", a.first_pages_of.size(), a);
    check_count("page_sizes", a.page_sizes.size(), a);
    check_count("ratios", a.ratios.size(), a);
    check_count("lowest_pages", a.lowest_pages.size(), a);
    check_count("slots", a.slots.size(), a);
    p.num_reqs = a.num_reqs;
    p.num_tables = static_cast<int32_t>(count);
    p.cu_seqlens_is_int64 = check_per_request("cu_seqlens", a.cu_seqlens, a.num_reqs + 1, a.cu_seqlens);
    p.seq_lens_is_int64 = check_per_request("seq_lens", a.seq_lens, a.num_reqs, a.cu_seqlens);
    t = TokenSlotsTensors{a.cu_seqlens, a.seq_lens, a.page_tables.vec(), std::vector<at::Tensor>(count), a.slots.vec()};
    for (size_t i = 0; i < count; ++i) {
        check_table(a, i, p.tables[i], t);
        p.num_tokens = a.slots[0].dim() == 1 ? a.slots[0].size(0) : 0;
        check_output(a, i, p.num_tokens);
    }
    return p;
}

TORCH_LIBRARY_FRAGMENT(dsv4_npu_ops, m) {
    m.def(
        "token_slots(Tensor cu_seqlens, Tensor seq_lens, Tensor[] page_tables, Tensor[] first_pages,"
        " int[] first_pages_of, int[] page_sizes, int[] ratios, int[] lowest_pages, int num_reqs, Tensor(a!)[] slots) "
        "-> ()");
}

}  // namespace dsv4

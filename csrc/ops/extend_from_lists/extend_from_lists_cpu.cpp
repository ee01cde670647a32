#include <ATen/EmptyTensor.h>
#include <c10/core/SymInt.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "cpu/integers.h"
#include "ops/extend_from_lists/extend_from_lists.h"

namespace dsv4 {
namespace {

// full_pages, swa_pages, c128_pages: lists; mapping: [num_slots]; table: [max_requests, table_row_elems]; owners:
// [num_owners]; full, swa, c4, c128, replaced: outputs.
struct ExtendPointers {
    const int64_t* full_pages;
    const int64_t* swa_pages;
    const int64_t* c128_pages;
    int64_t* mapping;
    int32_t* table;
    int32_t* owners;
    int32_t* full;
    int64_t* swa;
    int32_t* c4;
    int32_t* c128;
    int32_t* replaced;
};

struct PlannedRow : ExtendRow {
    ExtendCounts before;
};

using Rows = c10::SmallVector<PlannedRow, 64>;  // 64: the usual decode batch stays on the stack

struct RowReader {
    cpu::IntegerInput requests;
    cpu::IntegerInput prefixes;
    cpu::IntegerInput lengths;
    cpu::IntegerInput last_locs;

    ExtendRow row(int64_t i, const ExtendFromListsParams& p) const {
        const int64_t seq = lengths[i];
        return ExtendRow{requests[i], p.prefix_is_int64 == kOneToken ? seq - 1 : prefixes[i], seq, last_locs[i]};
    }
};

void check_lengths(const ExtendRow& row, int64_t i) {
    TORCH_CHECK_VALUE(row.prefix >= 0 || is_extend_padding(row), kExtendOp, ": prefix_lens[", i, "] is ", row.prefix,
                      ", expected at least 0");
    TORCH_CHECK_VALUE(row.seq >= row.prefix, kExtendOp, ": seq_lens[", i, "] is ", row.seq,
                      ", expected no less than prefix_lens, which is ", row.prefix);
}

void check_row(const ExtendRow& row, int64_t i, const ExtendFromListsParams& p) {
    check_lengths(row, i);
    const int32_t fault = extend_row_fault(row, p);
    TORCH_CHECK_VALUE(fault != kExtendUnknownRequest, kExtendOp, ": req_pool_indices[", i, "] is ", row.request,
                      ", expected 0 <= index < ", p.max_requests, " (rows of c128_table)");
    TORCH_CHECK_VALUE(fault != kExtendBeyondTable, kExtendOp, ": seq_lens[", i, "] is ", row.seq,
                      ", expected groups within the ", p.columns, " columns of c128_table");
    TORCH_CHECK_VALUE(fault != kExtendLastLoc, kExtendOp, ": last_loc[", i, "] is ", row.last_loc,
                      ", expected the slot of token ", row.prefix - 1, ", within the ", p.num_slots,
                      " entries of full_to_swa");
    TORCH_CHECK_VALUE(fault != kExtendTail, kExtendOp, ": swa_tail is ", p.swa_tail,
                      ", expected tails from a page's start, ", "but seq_lens[", i, "] is ", row.seq);
}

void check_room(int64_t i, const ExtendCounts& before, const ExtendCounts& counts, const ExtendFromListsParams& p) {
    const int32_t fault = extend_room_fault(before, counts, p);
    TORCH_CHECK_VALUE(fault != kExtendBeyondOutputs, kExtendOp, ": row ", i, " brings ", counts.tokens, " tokens, ",
                      counts.c4, " and ", counts.c128, " groups and ", counts.c128_pages, " pages of c128 behind ",
                      before.tokens, ", ", before.c4, ", ", before.c128, " and ", before.c128_pages,
                      ", expected no more than num_tokens, num_c4, num_c128 and num_c128_pages, which are ",
                      p.num_tokens, ", ", p.num_c4, ", ", p.num_c128, " and ", p.num_replaced);
    TORCH_CHECK_VALUE(fault != kExtendBeyondLists, kExtendOp, ": row ", i, " takes ", counts.full_pages, ", ",
                      counts.swa_pages, " and ", counts.c128_pages, " pages and the rows before it ", before.full_pages,
                      ", ", before.swa_pages, " and ", before.c128_pages,
                      ", expected together no more than full_pages, swa_pages and c128_pages have, which is ", p.full_pages,
                      ", ", p.swa_pages, " and ", p.c128_pages);
}

// The pages that the row goes on in.
void check_started_pages(const ExtendRow& row, int64_t i, const ExtendPointers& data, const ExtendFromListsParams& p) {
    if (joins_swa_page(row, p)) {
        const int64_t slot = data.mapping[row.last_loc];
        TORCH_CHECK_VALUE(is_last_slot(slot, row, p) && is_swa_page(page_of(slot, p.page_shift), p), kExtendOp,
                          ": full_to_swa at last_loc[", i, "] is ", slot, ", expected the swa slot of token ",
                          row.prefix - 1);
    }
    const int64_t group = groups_in(row.prefix, kRatioC128);
    if (starts_inside_page(group, p.c128_page_shift) && group < groups_in(row.seq, kRatioC128)) {
        const int32_t page = data.table[c128_entry_elems(row.request, group, p)];
        TORCH_CHECK_VALUE(is_c128_page(page, p), kExtendOp, ": the page of group ", group, " in c128_table[",
                          row.request, "] is ", page, ", expected one of the ", p.num_owners, " of c128_owners");
    }
}

template <typename IsPage>
void check_list(const char* name, const int64_t* pages, int64_t count, const IsPage& is_page) {
    for (int64_t i = 0; i < count; ++i) {
        TORCH_CHECK_VALUE(is_page(pages[i]), kExtendOp, ": ", name, "[", i, "] is ", pages[i],
                          ", expected a page from 1 up, of the pool");
    }
}

// Validates everything, so that what follows cannot fail half-way.
Rows plan_rows(const ExtendTensors& tensors, const ExtendPointers& data, const ExtendFromListsParams& p) {
    const RowReader reader{cpu::IntegerInput(tensors.req_pool_indices),
                           cpu::IntegerInput(tensors.prefix_lens.value_or(at::Tensor())),
                           cpu::IntegerInput(tensors.seq_lens), cpu::IntegerInput(tensors.last_loc)};
    Rows rows;
    ExtendCounts total{};
    for (int64_t i = 0; i < p.num_rows; ++i) {
        const ExtendRow row = reader.row(i, p);
        if (is_extend_padding(row)) {
            continue;
        }
        check_row(row, i, p);
        const ExtendCounts counts = extend_counts(row, p);
        check_room(i, total, counts, p);
        check_started_pages(row, i, data, p);
        rows.push_back(PlannedRow{row, total});
        add_counts(total, counts);
    }
    TORCH_CHECK_VALUE(total.tokens == p.num_tokens && total.c4 == p.num_c4 && total.c128 == p.num_c128 &&
                          total.c128_pages == p.num_replaced,
                      kExtendOp, ": num_tokens, num_c4, num_c128 and num_c128_pages are ", p.num_tokens, ", ", p.num_c4,
                      ", ", p.num_c128, " and ", p.num_replaced, ", expected ", total.tokens, ", ", total.c4, ", ",
                      total.c128, " and ", total.c128_pages, " as the rows bring");
    check_list("full_pages", data.full_pages, total.full_pages, [&](int64_t page) { return is_full_page(page, p); });
    check_list("swa_pages", data.swa_pages, total.swa_pages, [&](int64_t page) { return is_swa_page(page, p); });
    check_list("c128_pages", data.c128_pages, total.c128_pages, [&](int64_t page) { return is_c128_page(page, p); });
    return rows;
}

int64_t full_slot(const PlannedRow& row, int64_t token, const ExtendPointers& data, const ExtendFromListsParams& p) {
    if (!is_taken(token, row.prefix, p.page_shift)) {
        return row.last_loc + 1 + (token - row.prefix);
    }
    return slot_of(data.full_pages[list_entry(token, row.prefix, row.before.full_pages, p.page_shift)], token,
                   p.page_shift);
}

int64_t swa_slot(const PlannedRow& row, int64_t token, const ExtendPointers& data, const ExtendFromListsParams& p) {
    const int64_t begin = swa_begin(row, p);
    if (token < begin) {
        return 0;
    }
    if (!is_taken(token, begin, p.page_shift)) {
        return data.mapping[row.last_loc] + 1 + (token - row.prefix);
    }
    return slot_of(data.swa_pages[list_entry(token, begin, row.before.swa_pages, p.page_shift)], token, p.page_shift);
}

void extend_tokens(const PlannedRow& row, const ExtendPointers& data, const ExtendFromListsParams& p) {
    int64_t entry = row.before.tokens;
    int64_t group_entry = row.before.c4;
    for (int64_t begin = row.prefix; begin < row.seq;) {
        const int64_t end = min_of(next_page_start(begin, p.page_shift), row.seq);
        const int64_t units = end - begin;
        const int64_t first_full = full_slot(row, begin, data, p);
        const int64_t first_swa = swa_slot(row, begin, data, p);
        std::iota(data.full + entry, data.full + entry + units, static_cast<int32_t>(first_full));
        if (first_swa > 0) {
            std::iota(data.swa + entry, data.swa + entry + units, first_swa);
        } else {
            std::fill(data.swa + entry, data.swa + entry + units, 0);
        }
        std::copy(data.swa + entry, data.swa + entry + units, data.mapping + first_full);
        const int64_t groups = first_group_from(end) - first_group_from(begin);
        std::iota(data.c4 + group_entry, data.c4 + group_entry + groups,
                  static_cast<int32_t>(c4_slot_of(first_full, tokens_to_group_end(begin))));
        entry += units;
        group_entry += groups;
        begin = end;
    }
}

void extend_groups(const PlannedRow& row, const ExtendPointers& data, const ExtendFromListsParams& p) {
    const int64_t first = groups_in(row.prefix, kRatioC128);
    const int64_t last = groups_in(row.seq, kRatioC128);
    int32_t* out = data.c128 + row.before.c128;
    for (int64_t group = first; group < last; ++group) {
        int32_t& page = data.table[c128_entry_elems(row.request, group, p)];
        if (is_taken(group, first, p.c128_page_shift) && !starts_inside_page(group, p.c128_page_shift)) {
            const int64_t listed = list_entry(group, first, row.before.c128_pages, p.c128_page_shift);
            data.replaced[listed] = page;
            page = static_cast<int32_t>(data.c128_pages[listed]);
            data.owners[page] = 1;
        }
        *out++ = static_cast<int32_t>(slot_of(page, group, p.c128_page_shift));
    }
}

void run(const ExtendFromListsParams& p, const ExtendTensors& tensors, const ExtendedSlots& slots) {
    const ExtendPointers data{
        tensors.full_pages.const_data_ptr<int64_t>(),   tensors.swa_pages.const_data_ptr<int64_t>(),
        tensors.c128_pages.const_data_ptr<int64_t>(),   tensors.full_to_swa.mutable_data_ptr<int64_t>(),
        tensors.c128_table.mutable_data_ptr<int32_t>(), tensors.c128_owners.mutable_data_ptr<int32_t>(),
        slots.full.mutable_data_ptr<int32_t>(),         slots.swa.mutable_data_ptr<int64_t>(),
        slots.c4.mutable_data_ptr<int32_t>(),           slots.c128.mutable_data_ptr<int32_t>(),
        slots.c128_replaced.mutable_data_ptr<int32_t>()};
    for (const PlannedRow& row : plan_rows(tensors, data, p)) {
        extend_tokens(row, data, p);
        extend_groups(row, data, p);
    }
}

// (tokens, groups of 4 and 128, pages of full, swa and c128, int64 [N, 3])
using Needs =
    std::tuple<c10::SymInt, c10::SymInt, c10::SymInt, c10::SymInt, c10::SymInt, c10::SymInt, at::Tensor>;

Needs extend_needs(const std::optional<at::Tensor>& prefix_lens, const at::Tensor& seq_lens, int64_t page_size,
                   int64_t c128_page_size, std::optional<int64_t> swa_tail) {
    const auto [total, columns] = count_extend(prefix_lens, seq_lens, page_size, c128_page_size, swa_tail);
    at::Tensor new_columns = at::detail::empty_cpu({static_cast<int64_t>(columns.size()) / 3, 3}, at::kLong);
    std::copy(columns.begin(), columns.end(), new_columns.mutable_data_ptr<int64_t>());
    return {total.tokens,          total.c4, total.c128, total.full_pages, total.swa_pages, total.c128_pages,
            std::move(new_columns)};
}

}  // namespace

ExtendNeeds count_extend(const std::optional<at::Tensor>& prefix_lens, const at::Tensor& seq_lens, int64_t page_size,
                         int64_t c128_page_size, std::optional<int64_t> swa_tail) {
    const ExtendFromListsParams p = check_extend_needs(prefix_lens, seq_lens, page_size, c128_page_size, swa_tail);
    const cpu::IntegerInput prefixes(prefix_lens.value_or(at::Tensor()));
    const cpu::IntegerInput lengths(seq_lens);
    ExtendNeeds needs{};
    for (int64_t i = 0; i < p.num_rows; ++i) {
        const int64_t seq = lengths[i];
        const ExtendRow row{0, p.prefix_is_int64 == kOneToken ? seq - 1 : prefixes[i], seq, 0};
        TORCH_CHECK_VALUE(seq <= std::numeric_limits<int32_t>::max(), kExtendOp, ": seq_lens[", i, "] is ", seq,
                          ", expected at most ", std::numeric_limits<int32_t>::max());
        TORCH_CHECK_VALUE(p.prefix_is_int64 != kOneToken || seq >= 1, kExtendOp, ": seq_lens[", i, "] is ", seq,
                          ", expected at least 1 without prefix_lens");
        check_lengths(row, i);
        const ExtendCounts counts = extend_counts(row, p);
        add_counts(needs.total, counts);
        if (counts.c128_pages > 0) {
            const int64_t begin = pages_for(groups_in(row.prefix, kRatioC128), p.c128_page_shift);
            needs.new_columns.insert(needs.new_columns.end(), {i, begin, begin + counts.c128_pages});
        }
    }
    return needs;
}

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) {
    register_extend_from_lists<&run>(m);
    m.impl("extend_from_lists.needs", &extend_needs);
}

}  // namespace dsv4

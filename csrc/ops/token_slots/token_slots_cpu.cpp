#include <algorithm>

#include "cpu/integers.h"
#include "ops/token_slots/token_slots.h"
#include "torch/check.h"

namespace dsv4 {
namespace {

struct Request {
    int64_t begin;
    int64_t end;
    int64_t seq_len;

    bool is_padding() const { return begin == end || seq_len == 0; }
};

struct RequestReader {
    RequestReader(const TokenSlotsTensors& t, const TokenSlotsParams& params)
        : p(params), cu_seqlens(t.cu_seqlens), seq_lens(t.seq_lens) {}

    const TokenSlotsParams& p;
    cpu::IntegerInput cu_seqlens;
    cpu::IntegerInput seq_lens;

    Request read(int64_t request) const {
        return Request{cu_seqlens[request], cu_seqlens[request + 1], seq_lens[request]};
    }

    // Raises ValueError for a request that token_slots_fault names.
    void check(int64_t index) const {
        const Request request = read(index);
        const int32_t fault = token_slots_fault(request.begin, request.end, request.seq_len, p.num_tokens);
        TORCH_CHECK_VALUE(fault != kBadOffsets, kTokenSlotsOp, ": cu_seqlens[", index, "] and cu_seqlens[", index + 1,
                          "] are ", request.begin, " and ", request.end, ", expected 0 or more and not decreasing");
        TORCH_CHECK_VALUE(fault != kBeyondOutputs, kTokenSlotsOp, ": cu_seqlens[", index + 1, "] is ", request.end,
                          ", expected at most ", p.num_tokens, " (entries of slots)");
        TORCH_CHECK_VALUE(fault != kLengthTooShort, kTokenSlotsOp, ": seq_lens[", index, "] is ", request.seq_len,
                          ", expected 0 for padding or at least ", request.end - request.begin, " (its new tokens)");
        TORCH_CHECK_VALUE(fault != kLengthTooLong, kTokenSlotsOp, ": seq_lens[", index, "] is ", request.seq_len,
                          ", expected at most ", kMostSlot);
    }
};

// One table, row by row.
struct TableReader {
    TableReader(const TokenSlotsTensors& t, const TokenSlotsParams& p, size_t i)
        : table(p.tables[i]), pages(t.tables[i]), first_pages(t.first_pages[i]) {}

    const TokenSlotsTable& table;
    cpu::IntegerInput pages;
    cpu::IntegerInput first_pages;

    // Calls visit(column, page, units) for each column with pages of units that the request completes.
    template <typename Visit>
    void each_page(int64_t request, const CompletedUnits& units, const Visit& visit) const {
        const int64_t first_page = table.has_first_pages ? first_pages[request] : 0;
        const Interval columns = columns_of(units.first, units.end, first_page, table);
        for (int64_t column = columns.begin; column < columns.end; ++column) {
            const int64_t page = pages[token_slots_entry_elems(request, column, table)];
            if (page >= table.lowest_page) {
                visit(column, page, units_in_column(units.first, units.end, column, first_page, table));
            }
        }
    }
};

CompletedUnits units_of(const Request& request, const TokenSlotsTable& table) {
    return completed_units(request.begin, request.end, request.end, request.seq_len, table.ratio_shift);
}

template <typename Visit>
void each_request(const RequestReader& requests, const Visit& visit) {
    for (int64_t i = 0; i < requests.p.num_reqs; ++i) {
        const Request request = requests.read(i);
        if (!request.is_padding()) {
            visit(i, request);
        }
    }
}

void check_pages(const RequestReader& requests, const TableReader& reader, size_t i) {
    each_request(requests, [&](int64_t index, const Request& request) {
        reader.each_page(index, units_of(request, reader.table), [&](int64_t column, int64_t page, Interval) {
            TORCH_CHECK_VALUE(page_fits(page, reader.table), kTokenSlotsOp, ": page_tables[", i, "][", index, ", ",
                              column, "] is ", page, ", expected slots that fit int32 (page_sizes[", i, "] is ",
                              int64_t{1} << reader.table.page_shift, ")");
        });
    });
}

void write_slots(const RequestReader& requests, const TableReader& reader, const at::Tensor& slots) {
    int64_t* out = slots.mutable_data_ptr<int64_t>();  // [T]
    std::fill_n(out, requests.p.num_tokens, kTokenSlotDummy);
    each_request(requests, [&](int64_t index, const Request& request) {
        const CompletedUnits units = units_of(request, reader.table);
        reader.each_page(index, units, [&](int64_t, int64_t page, Interval in_page) {
            for (int64_t unit = in_page.begin; unit < in_page.end; ++unit) {
                out[token_of(unit, units, reader.table)] = unit_slot(page, unit, reader.table);
            }
        });
    });
}

void run(const TokenSlotsParams& p, const TokenSlotsTensors& t) {
    const RequestReader requests(t, p);
    for (int64_t i = 0; i < p.num_reqs && p.num_tables > 0; ++i) {
        requests.check(i);
    }
    for (size_t i = 0; i < t.tables.size(); ++i) {
        check_pages(requests, TableReader(t, p, i), i);
    }
    for (size_t i = 0; i < t.tables.size(); ++i) {
        write_slots(requests, TableReader(t, p, i), t.slots[i]);
    }
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_token_slots<&run>(m); }

}  // namespace dsv4

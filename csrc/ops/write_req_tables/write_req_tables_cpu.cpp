#include <c10/util/SmallVector.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>

#include "ops/write_req_tables/write_req_tables.h"
#include "torch/pool_addresses.h"

namespace dsv4 {
namespace {

using Rows = c10::SmallVector<WriteRow, 64>;  // 64: the usual decode batch stays on the stack

int64_t read(const at::Tensor& values, int32_t input, const WriteReqTablesParams& p, int64_t row) {
    return is_wide_input(input, p) ? static_cast<const int64_t*>(values.const_data_ptr())[row]
                                   : static_cast<const int32_t*>(values.const_data_ptr())[row];
}

WriteRow read_row(const WriteTensors& rows, int64_t i, const WriteReqTablesParams& p) {
    const int64_t start = read(rows.starts, kWriteStarts, p, i);
    return WriteRow{read(rows.req_pool_indices, kWriteRequests, p, i), start, read(rows.ends, kWriteEnds, p, i),
                    p.has_state_starts ? read(*rows.c4_state_starts, kWriteC4StateStarts, p, i) : start,
                    p.has_state_starts ? read(*rows.c128_state_starts, kWriteC128StateStarts, p, i) : start};
}

std::string describe(int32_t fault, int64_t i, const WriteRow& row, const WriteReqTablesParams& p) {
    const std::string starts = c10::str(
        "starts[", i, "] is ", row.start,
        p.has_state_starts ? c10::str(" (state pools: ", row.c4_state_start, " and ", row.c128_state_start, ")")
                           : std::string());
    switch (fault) {
        case kWriteNegativeStart:
            return starts + ", expected at least 0";
        case kWriteEndBeforeStart:
            return c10::str("ends[", i, "] is ", row.end, ", expected no less than the starts, but ", starts);
        case kWriteUnknownRequest:
            return c10::str("req_pool_indices[", i, "] is ", row.request, ", expected 0 <= index < ", p.max_requests,
                            " (rows of the tables)");
        default:
            return c10::str("ends[", i, "] is ", row.end, ", expected units within the columns of every table");
    }
}

// Validates every row, so that what follows cannot fail half-way.
Rows read_rows(const WriteTensors& rows, const WriteReqTablesParams& p) {
    Rows valid;
    std::array<int64_t, kNumPools> needed = {};
    for (int64_t i = 0; i < p.num_rows; ++i) {
        const WriteRow row = read_row(rows, i, p);
        const int32_t fault = write_row_fault(row, p);
        TORCH_CHECK_VALUE(fault == kWriteValid, "write_req_tables: ", describe(fault, i, row, p));
        for (int32_t pool = 0; pool < kNumPools; ++pool) {
            needed[pool] += write_units(row, pool, p);
        }
        valid.push_back(row);
    }
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        TORCH_CHECK_VALUE(p.pools[pool].loc_elems >= needed[pool], "write_req_tables: ", kLocNames[pool], " has ",
                          p.pools[pool].loc_elems, " entries, expected at least ", needed[pool],
                          " (units of all rows)");
    }
    return valid;
}

// The first slot in each page says which page it is.
template <typename T>
void write_pages(const WriteRow& row, int32_t pool, const int32_t* slots, T* table, const PoolAddress& a) {
    const int64_t first = write_begin(row, pool);
    const int64_t end = write_end(row, pool);
    for (int64_t unit = first; unit < end; unit = next_page_start(unit, a.page_shift)) {
        table[page_entry_elems(row.request, page_of(unit, a.page_shift), a)] =
            page_entry(slots[unit - first], a.page_shift);
    }
}

// table: [max_requests, row_elems]; slots: the flat intervals of all rows.
template <typename T>
void write_pool(int32_t pool, const Rows& rows, T* table, const int32_t* slots, const WriteReqTablesParams& p) {
    const PoolAddress a = pool_address(pool, p);
    for (const WriteRow& row : rows) {
        const int64_t units = write_units(row, pool, p);
        if (a.kind == kPages) {
            write_pages(row, pool, slots, table, a);
        } else if (units > 0) {
            std::transform(slots, slots + units, table + slot_entry_elems(row.request, write_begin(row, pool), a),
                           table_entry);
        }
        slots += units;
    }
}

void run(const WriteReqTablesParams& p, const WriteTensors& tensors) {
    const Rows rows = read_rows(tensors, p);
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        if (!is_written(pool, p)) {
            continue;
        }
        const int32_t* slots = tensors.loc[pool].const_data_ptr<int32_t>();
        if (p.pools[pool].is_int64) {
            write_pool(pool, rows, tensors.tables[pool].mutable_data_ptr<int64_t>(), slots, p);
        } else {
            write_pool(pool, rows, tensors.tables[pool].mutable_data_ptr<int32_t>(), slots, p);
        }
    }
}

}  // namespace

TORCH_LIBRARY_IMPL(dsv4_npu_ops, CPU, m) { register_write_req_tables<&run>(m); }

}  // namespace dsv4

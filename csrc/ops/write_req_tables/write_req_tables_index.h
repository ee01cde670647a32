// Scattering flat slots into the request tables: parameters and index arithmetic, shared by the CPU loops and the
// device kernel.
#pragma once

#include "common/pools.h"
#include "common/step_launch.h"

// Arrays are in table order; their length is a number because launch stubs repeat the struct outside its namespace.
struct WriteReqTablesParams {
    int64_t row_elems[6];      // stride between two rows of a request table
    int64_t loc_elems[6];      // entries of the pool's flat slots
    int64_t columns[6];        // units that a row of the table holds; 0: the pool does not exist
    int64_t max_requests;      // rows of the request tables
    int64_t num_rows;          // B: rows, padding rows included
    int32_t request_is_int64;  // req_pool_indices is int32 otherwise; likewise the next four
    int32_t start_is_int64;
    int32_t end_is_int64;
    int32_t c4_state_start_is_int64;
    int32_t c128_state_start_is_int64;
    int32_t has_state_starts;  // the state pools start at their own positions
};

namespace dsv4 {

// What is wrong with a row. The host raises; a device makes the row padding and records the code.
constexpr int32_t kWriteValid = 0;
constexpr int32_t kWriteNegativeStart = 1;
constexpr int32_t kWriteEndBeforeStart = 2;
constexpr int32_t kWriteUnknownRequest = 3;
constexpr int32_t kWriteBeyondTable = 4;
constexpr int32_t kWriteBeyondSlots = 5;

// Lengths in raw tokens; starts of the state pools equal `start` unless they are given.
struct WriteRow {
    int64_t request;
    int64_t start;
    int64_t end;
    int64_t c4_state_start;
    int64_t c128_state_start;
};

// A row without tokens writes nothing in any pool; its request index is never looked at.
DSV4_HOST_DEVICE constexpr bool is_write_padding(const WriteRow& row) { return row.start == row.end; }

DSV4_HOST_DEVICE constexpr int64_t write_begin(const WriteRow& row, int32_t pool) {
    const int64_t start = pool == kC4State ? row.c4_state_start : pool == kC128State ? row.c128_state_start : row.start;
    return is_write_padding(row) ? 0 : units_in(start, pool);
}

DSV4_HOST_DEVICE constexpr int64_t write_end(const WriteRow& row, int32_t pool) {
    return is_write_padding(row) ? 0 : units_in(row.end, pool);
}

// Entries of the pool's flat slots that belong to the row.
DSV4_HOST_DEVICE constexpr int64_t write_units(const WriteRow& row, int32_t pool, const WriteReqTablesParams& p) {
    return p.columns[pool] == 0 ? 0 : write_end(row, pool) - write_begin(row, pool);
}

DSV4_HOST_DEVICE constexpr int32_t write_row_fault(const WriteRow& row, const WriteReqTablesParams& p) {
    if (is_write_padding(row)) {
        return kWriteValid;
    }
    if (row.start < 0 || row.c4_state_start < 0 || row.c128_state_start < 0) {
        return kWriteNegativeStart;
    }
    if (row.end < row.start || row.end < row.c4_state_start || row.end < row.c128_state_start) {
        return kWriteEndBeforeStart;
    }
    if (row.request < 0 || row.request >= p.max_requests) {
        return kWriteUnknownRequest;
    }
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        if (p.columns[pool] != 0 && units_in(row.end, pool) > p.columns[pool]) {
            return kWriteBeyondTable;
        }
    }
    return kWriteValid;
}

// A negative slot is nobody's; tables say 0 for that.
DSV4_HOST_DEVICE constexpr int32_t table_entry(int32_t slot) { return max_of<int32_t>(0, slot); }

// A device keeps the running total of the flat slots once for pools whose intervals are equal: full and swa share one.
constexpr int32_t kWriteTotals = 5;

DSV4_HOST_DEVICE constexpr int32_t total_of_pool(int32_t pool) { return pool == kFull ? 0 : pool - 1; }

// Units that a row adds to a total.
DSV4_HOST_DEVICE constexpr int64_t units_of_total(const WriteRow& row, int32_t total, const WriteReqTablesParams& p) {
    const int64_t units = write_units(row, total + 1, p);
    return total == 0 ? max_of(units, write_units(row, kFull, p)) : units;
}

DSV4_HOST_DEVICE constexpr int64_t limit_of_total(int32_t total, const WriteReqTablesParams& p) {
    int64_t limit = INT32_MAX;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        if (total_of_pool(pool) == total && p.columns[pool] != 0) {
            limit = min_of(limit, p.loc_elems[pool]);
        }
    }
    return limit;
}

constexpr int64_t kWriteTileUnits = 4096;
constexpr int64_t kWriteChunkRows = 256;  // rows whose inputs are read at a time
constexpr int64_t kWriteInputs = 5;       // request, start, end, starts of the state pools
constexpr int64_t kWriteArrays = 4 + kWriteTotals;
static_assert(kWriteInputs * kWriteChunkRows * 2 <= kWriteTileUnits, "inputs and slots share a buffer");
static_assert((kWriteArrays * row_array_elems(kMaxDeviceRows) + kWriteTileUnits) * 4 <= kUbBudgetBytes);

DSV4_HOST_DEVICE constexpr int64_t write_blocks(const WriteReqTablesParams& p, int64_t cores) {
    int64_t units = 0;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        units += p.columns[pool] == 0 ? 0 : p.loc_elems[pool];
    }
    return blocks_for(4 * units, kGrainBytes, cores);
}

}  // namespace dsv4

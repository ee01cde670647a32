// Scattering flat slots into tables of slots or of pages: parameters and index arithmetic, shared by the CPU loops and
// the device kernel.
#pragma once

#include "common/pool_address.h"
#include "common/step_launch.h"

// What a launch needs of a pool, in as few lines of arguments as it takes, which are in no cache.
struct WrittenPool {
    int64_t row_elems;  // as in PoolAddress; likewise the others but for the next
    int64_t loc_elems;  // entries of the pool's flat slots
    int32_t columns;
    int8_t kind;  // dsv4::kPages and dsv4::kSlots are written, others left alone
    int8_t is_int64;
    int8_t page_shift;
    int8_t slot_shift;
};

// Arrays are in table order; their length is a number because launch stubs repeat the struct outside its namespace.
struct WriteReqTablesParams {
    WrittenPool pools[6];
    int64_t num_rows;         // B: rows, padding rows included
    int32_t max_requests;     // rows that every table has
    int32_t max_end;          // raw tokens that every table has room for, rings of columns aside
    int8_t wide_inputs;       // bit input: it is int64, not int32
    int8_t rings;             // bit pool: its table is a ring of columns
    int8_t has_state_starts;  // the state pools start at their own positions
    int8_t slot_totals;       // bit total: a pool that it is of has a table of slots
    int8_t page_totals;       // the same of pages
    int8_t reserved[3];       // keeps the struct free of padding
};

namespace dsv4 {

// Inputs with a number for each row.
constexpr int32_t kWriteRequests = 0;
constexpr int32_t kWriteStarts = 1;
constexpr int32_t kWriteEnds = 2;
constexpr int32_t kWriteC4StateStarts = 3;
constexpr int32_t kWriteC128StateStarts = 4;
constexpr int32_t kWriteInputs = 5;

DSV4_HOST_DEVICE constexpr bool is_wide_input(int32_t input, const WriteReqTablesParams& p) {
    return (p.wide_inputs >> input & 1) != 0;
}

DSV4_HOST_DEVICE constexpr PoolAddress pool_address(int32_t pool, const WriteReqTablesParams& p) {
    const WrittenPool& w = p.pools[pool];
    return PoolAddress{w.row_elems, w.columns, 0, w.kind, w.is_int64, w.page_shift, w.slot_shift, 0, 0, 0};
}

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

DSV4_HOST_DEVICE constexpr bool is_written(int32_t pool, const WriteReqTablesParams& p) {
    return p.pools[pool].kind == kPages || p.pools[pool].kind == kSlots;
}

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
    return is_written(pool, p) ? write_end(row, pool) - write_begin(row, pool) : 0;
}

// Whether the ring of a pool has a column for each page that the row touches.
DSV4_HOST_DEVICE constexpr bool fits_ring(const WriteRow& row, int32_t pool, const WriteReqTablesParams& p) {
    const WrittenPool& a = p.pools[pool];
    return pages_for(write_end(row, pool), a.page_shift) - page_of(write_begin(row, pool), a.page_shift) <= a.columns;
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
    if (row.end > p.max_end) {
        return kWriteBeyondTable;
    }
    for (int32_t pool = 0; p.rings >> pool != 0; ++pool) {
        if ((p.rings >> pool & 1) != 0 && !fits_ring(row, pool, p)) {
            return kWriteBeyondTable;
        }
    }
    return kWriteValid;
}

// A negative slot is nobody's; tables say 0 for that.
DSV4_HOST_DEVICE constexpr int32_t table_entry(int32_t slot) { return max_of<int32_t>(0, slot); }

// The entry of a table of pages for a page in which the row's first unit has `slot`.
DSV4_HOST_DEVICE constexpr int32_t page_entry(int32_t slot, int32_t page_shift) {
    return static_cast<int32_t>(page_of(table_entry(slot), page_shift));
}

// A device keeps the running totals of the flat slots: of full and swa, whose intervals are also those of the state
// pools unless these start at their own positions; of c4, c128, and such state pools.
constexpr int32_t kWriteTotals = 5;

DSV4_HOST_DEVICE constexpr int32_t total_of_pool(int32_t pool, const WriteReqTablesParams& p) {
    return pool == kFull || (is_state_pool(pool) && p.has_state_starts == 0) ? 0 : pool - 1;
}

// A pool whose intervals a total adds up.
DSV4_HOST_DEVICE constexpr int32_t pool_of_total(int32_t total) { return total + 1; }

// slot_totals and page_totals.
DSV4_HOST_DEVICE constexpr int8_t totals_of_kind(int32_t kind, const WriteReqTablesParams& p) {
    int32_t totals = 0;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        totals |= p.pools[pool].kind == kind ? 1 << total_of_pool(pool, p) : 0;
    }
    return static_cast<int8_t>(totals);
}

DSV4_HOST_DEVICE constexpr bool total_is_written(int32_t total, const WriteReqTablesParams& p) {
    return ((p.slot_totals | p.page_totals) >> total & 1) != 0;
}

// Units that a row adds to a total that is written.
DSV4_HOST_DEVICE constexpr int64_t units_of_total(const WriteRow& row, int32_t total) {
    return write_end(row, pool_of_total(total)) - write_begin(row, pool_of_total(total));
}

DSV4_HOST_DEVICE constexpr int64_t limit_of_total(int32_t total, const WriteReqTablesParams& p) {
    int64_t limit = INT32_MAX;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        if (total_of_pool(pool, p) == total && is_written(pool, p)) {
            limit = min_of(limit, p.pools[pool].loc_elems);
        }
    }
    return limit;
}

// Units at multiples of which a total is cut into shares: few raw tokens, so that shares bring about as many rows.
DSV4_HOST_DEVICE constexpr int64_t write_share_units(int32_t total) {
    return max_of<int64_t>(1, kLaneElems >> unit_shift(pool_of_total(total)));
}

// Which share of a total's units a block takes: those with one unit more than others fall to different blocks.
DSV4_HOST_DEVICE constexpr int64_t write_share(int32_t total, int64_t block, int64_t blocks) {
    return (block + total * blocks / kWriteTotals) % blocks;
}

constexpr int64_t kWriteTileUnits = 3072;
constexpr int64_t kWriteTilePools = 4;   // pools of one total
constexpr int64_t kWriteTilePages = 96;  // entries of a page table at a time; each takes a 32-byte block on its way

constexpr int64_t kWriteChunkRows = 256;  // rows whose inputs are read at a time
constexpr int64_t kWriteArrays = 4 + kWriteTotals;
static_assert(kWriteInputs * kWriteChunkRows * 2 <= kWriteTileUnits, "inputs and slots share a buffer");
static_assert(kWriteTilePools * kWriteTilePages * kLaneElems <= kWriteTileUnits, "slots and pages share a buffer");
// A tile of int32 entries, and its copy of int64 ones.
static_assert((kWriteArrays * row_array_elems(kMaxDeviceRows) + 3 * kWriteTileUnits) * 4 <= kUbBudgetBytes);

static_assert(kWriteChunkRows <= kChunkRows, "a chunk's totals fit int32");
constexpr int64_t kWriteScanAreas = 5;
constexpr int64_t kWriteIotaElems = kWriteChunkRows + kLaneElems;
static_assert(kWriteIotaElems + lane_scan_elems(kWriteChunkRows, kWriteScanAreas) <= 2 * kWriteTileUnits,
              "the scan and int64 entries share a buffer");

constexpr int64_t kWriteRowNs = 250;  // of a row of the batch in all pools, for the block that writes it

DSV4_HOST_DEVICE constexpr int64_t write_blocks(const WriteReqTablesParams& p, int64_t cores) {
    int64_t units = 0;
    for (int32_t pool = 0; pool < kNumPools; ++pool) {
        units += is_written(pool, p) ? p.pools[pool].loc_elems : 0;
    }
    return blocks_for_work(kWriteRowNs * p.num_rows + 8 * units / kBytesPerNs, cores);
}

}  // namespace dsv4

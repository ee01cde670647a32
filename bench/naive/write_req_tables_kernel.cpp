#include "kernel_operator.h"
#include "ops/write_req_tables/write_req_tables_index.h"
#include "scalar_run.h"

namespace dsv4::naive {

struct WriteInputs {
    GM_ADDR requests;
    GM_ADDR starts;
    GM_ADDR ends;
    GM_ADDR c4_state_starts;
    GM_ADDR c128_state_starts;

    __aicore__ inline WriteRow row(int64_t i, const WriteReqTablesParams& p) const {
        const int64_t start = integer(starts, is_wide_input(kWriteStarts, p), p.num_rows, i);
        const bool own = p.has_state_starts != 0;
        const auto read = [&](GM_ADDR values, int32_t input) {
            return integer(values, is_wide_input(input, p), p.num_rows, i);
        };
        return WriteRow{read(requests, kWriteRequests), start, read(ends, kWriteEnds),
                        own ? read(c4_state_starts, kWriteC4StateStarts) : start,
                        own ? read(c128_state_starts, kWriteC128StateStarts) : start};
    }
};

// Stores one entry of a table.
__aicore__ inline void write_entry(ScalarRun<int32_t>& narrow, ScalarRun<int64_t>& wide, const PoolAddress& a,
                                   GM_ADDR table, int64_t at, int32_t entry) {
    if (a.is_int64 != 0) {
        wide.begin(table, at);
        wide.push(entry);
        wide.end();
    } else {
        narrow.begin(table, at);
        narrow.push(entry);
        narrow.end();
    }
}

}  // namespace dsv4::naive

extern "C" __global__ __aicore__ void write_req_tables(GM_ADDR full_table, GM_ADDR swa_table, GM_ADDR c4_table,
                                                       GM_ADDR c128_table, GM_ADDR c4_state_table,
                                                       GM_ADDR c128_state_table, GM_ADDR requests, GM_ADDR starts,
                                                       GM_ADDR ends, GM_ADDR c4_state_starts, GM_ADDR c128_state_starts,
                                                       GM_ADDR full_loc, GM_ADDR swa_loc, GM_ADDR c4_loc,
                                                       GM_ADDR c128_loc, GM_ADDR c4_state_loc, GM_ADDR c128_state_loc,
                                                       GM_ADDR error_lanes, WriteReqTablesParams p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    static_cast<void>(error_lanes);
    AscendC::TPipe pipe;
    GM_ADDR tables[] = {full_table, swa_table, c4_table, c128_table, c4_state_table, c128_state_table};
    GM_ADDR slots[] = {full_loc, swa_loc, c4_loc, c128_loc, c4_state_loc, c128_state_loc};
    const dsv4::naive::WriteInputs inputs{requests, starts, ends, c4_state_starts, c128_state_starts};
    dsv4::naive::ScalarRun<int32_t> narrow(&pipe);
    dsv4::naive::ScalarRun<int64_t> wide(&pipe);
    const dsv4::BlockShare own = dsv4::block_share(p.num_rows, 1, AscendC::GetBlockIdx(), AscendC::GetBlockNum());
    for (int32_t pool = 0; pool < dsv4::kNumPools; ++pool) {
        const PoolAddress a = dsv4::pool_address(pool, p);
        int64_t entry = 0;
        for (int64_t i = 0; dsv4::is_written(pool, p) && i < own.end; ++i) {
            const dsv4::WriteRow row = inputs.row(i, p);
            const int64_t units = dsv4::write_units(row, pool, p);
            const int64_t begin = dsv4::write_begin(row, pool);
            for (int64_t unit = begin; i >= own.begin && unit < begin + units; ++unit) {
                const int32_t slot =
                    dsv4::naive::element<int32_t>(slots[pool], p.pools[pool].loc_elems, entry + (unit - begin));
                if (a.kind == dsv4::kSlots) {
                    dsv4::naive::write_entry(narrow, wide, a, tables[pool],
                                             dsv4::slot_entry_elems(row.request, unit, a), dsv4::table_entry(slot));
                } else if (unit == begin || dsv4::offset_in_page(unit, a.page_shift) == 0) {
                    const int64_t page = dsv4::page_of(unit, a.page_shift);
                    dsv4::naive::write_entry(narrow, wide, a, tables[pool],
                                             dsv4::page_entry_elems(row.request, page, a),
                                             dsv4::page_entry(slot, a.page_shift));
                }
            }
            entry += units;
        }
    }
}
